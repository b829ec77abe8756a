"""Formulas as a layer of a network. In the order data flows:

- `layer.py`: `LogicLayer` and the weights of its statements. **A rule's messages are
  added up in `LogicLayer.add_messages`**, from the contractions that `Plan._plan_message` in `plan.py` plans for each
  head.
- `grounding.py`: a rule set as formulas over typed domains, each split into patterns: clauses over all assignments in
  which no two atoms coincide.
- `contractions.py`: sums of products of tensors as a program, in a good order and with equal parts shared.
- `plan.py`: the patterns of a grounding as such a program, what it costs, and running it.
- `averaging.py`: what makes means of the sums of messages, where a layer is asked for them.
- `candidates.py`: candidate atoms, in place of all atoms; `relations.py`: their tables, joined and grouped by columns
  of integers; `terms.py`: patterns over them as terms, `sum_product.py`: their messages along an ear decomposition,
  `ground_clauses.py`: those of cyclic ones, enumerated;
  `sparse.py`: a plan of these, which an iteration runs in place of that of `plan.py`.
- `reach.py`: which atoms to make candidates, and what is still pulled at beyond them.
- `rates.py`, `choice.py`: how fast this machine is, and whether all atoms or candidates get messages.
- `schedule.py`: the iterations: how messages move log-odds so that they settle, also with hard formulas.
- `factors.py`, `exact.py`: the true marginals, where they can be had: ground factors, and messages between cliques.
- `influence.py`: which formulas and groundings moved an atom; `effects.py`: what each rule did to a whole batch.
"""
