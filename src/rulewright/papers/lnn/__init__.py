"""LNN rule learning."""
