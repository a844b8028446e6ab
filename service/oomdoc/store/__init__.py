"""Diagnoses, sessions, feedback and submitted cases."""
