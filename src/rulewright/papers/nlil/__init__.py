"""NLIL: settings (experiments.toml), even numbers (even.py), completion (kbc.py), scenes (scenes.py), report.py."""
