"""Checks that know no rules: compare bits, code, and what code has changed."""
