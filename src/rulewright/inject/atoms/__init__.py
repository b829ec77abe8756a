"""Rules over the relations of entity pairs, such as those of a document, in the order data flows.

- ``clauses``: rules and hard formulas, read as clauses over relations by index
- ``loss``: `ConsistencyLoss`, how far predicted relations break the clauses, for training
- ``joins``: the groundings of clauses in a labelling
- ``zero_one``: zero-one programs that grow by constraints, solved part by part
- ``inference``: the best labels that break no clause: exact, simplified or fully written, and repaired at a time limit
- ``decoder``: `RuleDecoder`, from logits to `Decoded` labels, each `Change` with the rule that forced it
- ``reports``: what a decoder or a layer changed, as values and as a file for the explorer; errors that were repaired
"""
