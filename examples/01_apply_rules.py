"""Facts and rules in, new facts with their reasons out."""

import rulewright as rw

kb = rw.KnowledgeBase.from_triples(
    [
        ("ann", "spouse_of", "al"),
        ("al", "parent_of", "bob"),
        ("bob", "parent_of", "cid"),
    ]
)
rules = rw.parse_rules("""
    0.95 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z).
    grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).
    hard !(parent_of(X, Y) & parent_of(Y, X)).
""")

inferred = rw.apply(rules, kb, max_rounds=None)  # until nothing is new; by default every rule is applied once
for fact in inferred:
    print(f"{fact.score:.2f}  {fact}  because of  {fact.rules[0]}")
print(f"broken constraints: {len(inferred.violations)}")

# Why a fact follows, its proof says.
print(rw.explain(rules, kb, "grandparent_of(ann, cid)"))
