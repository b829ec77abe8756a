"""Four problems on which a network breaks rules, our injectors on them, and other systems on them.

- `problems`: data that is generated or comes with scikit-learn, the networks, and how answers are scored.
- `ours`, `others`: for each problem and system the part that a user writes; its lines are counted.
"""
