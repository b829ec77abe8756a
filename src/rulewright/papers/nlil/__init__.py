"""NLIL."""
