"""The analytic memory model: what each GPU holds, phase by phase and term by term. Standard library only."""
