"""An Alchemy .mln file run end to end: rules and observed facts in, probabilities out."""

from pathlib import Path
from tempfile import TemporaryDirectory

import rulewright as rw
from rulewright.io.alchemy import read_db, read_mln

MLN = """
person = {Anna, Bob, Cleo, Dan, Eve, Finn}
Smokes(person)
Cancer(person)
Friends(person, person)

1.5 Smokes(x) => Cancer(x)
1.1 Friends(x, y) => (Smokes(x) <=> Smokes(y))
2.0 Friends(x, y) => Friends(y, x)
!Friends(x, x).
"""
FACTS = """
Friends(Anna, Bob)
Friends(Bob, Cleo)
Friends(Dan, Eve)
Smokes(Anna)
!Smokes(Dan)
Cancer(Cleo)
"""

with TemporaryDirectory() as folder:
    mln, db = Path(folder, "smoking.mln"), Path(folder, "smoking.db")
    mln.write_text(MLN)
    db.write_text(FACTS)
    rules, kb = read_mln(mln), read_db(db, mln=mln)

# Few pairs are friends; of the rest nothing is known. Damped, the messages settle.
model = rw.MarkovLogic(rules, iterations=50, damping=0.5, prior={"Friends": -3.0}).fit(kb)
found = model.predict(["Smokes", "Cancer"])
for each in found:
    print(f"{each.probability:.3f}  {each}")
print("messages:", model.convergence_[0])

print()
print(model.explain("'Smokes'('Bob')", top=2))

# What is not listed may also be taken as false.
closed = rw.MarkovLogic(rules, iterations=50, closed=["Friends"]).fit(kb)
print()
print("most probable, if no one else is friends:", *closed.predict(["Smokes"]).top(2))
