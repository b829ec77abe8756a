"""Rules over labels of atoms of any shape, such as the relations of a document or tags, in the order data flows.

- ``clauses``: rules and hard formulas, read as clauses over atoms by index
- ``pair_hinges``: hinges of Horn rules over entity pairs, in one pass over all groundings; ``grids``: sums over the
  groundings of clauses of any shape, block by block
- ``loss``: `ConsistencyLoss`, how far predictions break rules, for training
- ``rule_costs``: what it costs to break a rule, where one may be broken
- ``decoder_inputs``: what a decoder is given, as arrays, with the atoms that evidence and masks decide
- ``layout``: where the labels of all atoms of a batch stand in one vector
- ``joins``: the groundings of clauses in a labelling
- ``zero_one``: zero-one programs that grow by constraints, solved part by part
- ``inference``: the best labels that break no clause, or break some at a cost: exact, simplified or fully written, and
  repaired at a time limit
- ``forest``: the same by dynamic programming where atoms make chains or trees
- ``decoded``: `Decoded` labels, each `Change` with the rule that forced it, each `BrokenRule` with what it costs
- ``decoder``: `RuleDecoder`, from logits to these
- ``reports``: what a decoder or a layer changed, as values and as a file for the explorer; errors that were repaired
"""
