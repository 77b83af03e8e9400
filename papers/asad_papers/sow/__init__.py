"""Statements of work: jobs announced before they exist; the evaluation of the paper."""
