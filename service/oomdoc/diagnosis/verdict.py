"""Temporary: replaced by the outcomes branch."""


def predicted(view):
    return False


def verdict_of(view, causes):
    return "device-oom"
