"""Rules over entity pairs: clauses, the loss, the decoder and reports."""
