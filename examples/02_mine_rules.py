"""Mine rules from facts, read them, look at what speaks for and against one, and keep them in a file."""

import rulewright as rw
from rulewright.data.generators import family

kb = family(300, noise=0.01, seed=1).kb  # or rw.read_facts("your.tsv")

miner = rw.RuleMiner(max_length=2, min_confidence=0.8, min_support=20).fit(kb)
for rule in miner.rules_.rules[:5]:
    print(rule)

print()
shaky = miner.rules_.sort("confidence", descending=False).rules[0]
print(rw.explain_counts(shaky, kb, limit=2))

miner.rules_.save("family.rules")
assert rw.read_rules("family.rules") == miner.rules_

# High confidence on little support is worth less: the Beta bound says how much less.
careful = rw.RuleMiner(max_length=2, min_confidence=0.8, confidence="beta").fit(kb)
print(f"\n{len(miner.rules_)} rules by confidence and support, {len(careful.rules_)} by the Beta bound")
