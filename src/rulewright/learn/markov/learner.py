"""Markov logic for people with files instead of networks: rules and facts in, probabilities out."""

from __future__ import annotations

from typing import Self

import numpy as np
import torch

from rulewright.checks import Progress
from rulewright.data import KnowledgeBase
from rulewright.errors import DataError
from rulewright.inject.layer.schedule import Convergence
from rulewright.learn.markov.domains import cover_rows, draw_sample
from rulewright.learn.markov.facts import GroundFacts, Queries, declare_types, read_queries
from rulewright.learn.markov.marginals import Marginals
from rulewright.learn.markov.network import MarkovNetwork
from rulewright.learn.markov.parameters import MarkovParameters
from rulewright.learn.markov.training import learn_weights, train_encoder


class MarkovLogic(MarkovParameters):
    """Infers how probable atoms are, from weighted rules and observed facts.

    ``P(v) ∝ exp( Σ_i φ_i v_i + Σ_f w_f · (number of groundings of f that hold) )`` over all atoms that are not
    observed, by mean field in a `LogicLayer`. The potentials φ come from an encoder; a world (document) is a network of
    its own, all share weights and encoder.

    Args:
        rules: weighted, hard and ``learn`` formulas, and rules. Predicates that they declare closed are.
        encoder: ``"none"`` is a constant for each predicate (``prior``); ``"embedding"`` learns a state for each
            entity; ``"gnn"`` is a small graph network over the observed facts.
        training: of the encoder, besides the cross-entropy of observed facts: ``"distill"`` moves its log-odds to the
            layer's output, kept within ±``limit``; ``"end_to_end"`` infers hidden facts through the layer; ``"scores"``
            lowers the share of broken groundings among a few entities at a time, without the layer.
        iterations, damping, tolerance: of the layer. Undamped messages often oscillate.
        closed: predicates whose unobserved atoms are false, or ``"listed"``: those with true facts and no false ones.
        prior: log-odds of what nothing else is known of, for all or by predicate; ``"density"`` takes them from how
            many facts there are among all possible ones.
        scaling: ``"messages"`` divides a formula's weight by the mean size of its messages at the start where that is
            over 1, so that one with a thousand groundings an atom does not drown the others.
        scaling_power: the power of that size; over 1, formulas with many groundings an atom count less than others, and
            in the limit not at all.
        weights, hard_weight: what rules and hard formulas weigh, as in `LogicLayer`.
        learn_weights: learn the weights of all formulas but hard ones and those that name a predicate of which nothing
            is observed, whose meaning nothing would hold; those of ``learn`` formulas always are learned.
        weight_epochs, weight_rate, weight_decay: how; see `learn_weights` of `rulewright.learn.markov.training`.
        trust: the share of the encoder's log-odds above the prior that enters the layer. Below 1, distillation settles:
            its target is ``prior + trust · (φ − prior) + messages``.
        epochs, rate, size, hidden: of the encoder's training; its states' size, and the share of facts hidden from it.
        sample: the most entities of a type that are inferred together; ``"auto"`` takes what memory allows, None all.
            Samples hold entities that share facts; an atom that is in several gets the mean of its log-odds.
        memory_limit: bytes, or a text such as ``"2GB"``, that inference may take; None is half of the machine's memory.
        progress: called with a stage, how much of it is done, and of how much; see `rulewright.checks.Progress`.

    ``rules_`` has the weights that were learned, ``convergence_`` how the iterations of the last prediction went, for
    each network or sample, ``losses_`` the training.

    >>> import rulewright as rw
    >>> kb = rw.KnowledgeBase.from_facts([("smokes", "ann"), ("friend", "ann", "bob"), ("friend", "cid", "bob")])
    >>> rules = rw.parse_rules("2.0 smokes(X) & friend(X, Y) => smokes(Y).")
    >>> model = MarkovLogic(rules, closed=["friend"], prior=-1.0).fit(kb)
    >>> [str(marginal) for marginal in model.predict(["smokes"])]
    ['smokes(bob)', 'smokes(cid)']

    Xu et al., LogicMP: A Neuro-symbolic Approach for Encoding First-order Logic Constraints, ICLR 2024.
    """

    convergence_: tuple[Convergence, ...]
    losses_: dict[str, list[float]]
    network_: MarkovNetwork

    def fit(self, kb: KnowledgeBase) -> Self:
        """Take up the facts; learn weights and train the encoder where the parameters say so."""
        self._check_before_fit(kb)
        facts = GroundFacts(kb, declare_types(self.rules, kb))
        closed = [name for name in (*self.rules.closed, *kb.closed) if name in facts.declared]
        facts.close([*closed, *(facts.listed_predicates() if self.closed == "listed" else self.closed)])
        network = MarkovNetwork(facts, self)
        random = np.random.default_rng(self.seed)
        losses = {}
        if self.scaling == "messages":
            network.scale(draw_sample(network, facts.worlds()[0], random))
        if network.weights.learned is not None:
            losses["weights"] = learn_weights(network, random, self._progress)
        if self.training != "none":
            losses["encoder"] = train_encoder(network, random, self._progress)
        self.network_, self.rules_ = network, network.rules
        self.losses_, self.convergence_, self.note_ = losses, (), ""
        return self

    def predict(self, queries: Queries, *, opened: str | None = None) -> Marginals:
        """Return the marginals of the atoms asked for.

        ``queries`` is a knowledge base, whose true and false facts are the atoms (which is which is never looked at),
        or atoms: ``"smokes(ann)"``, ``("smokes", "ann")``; or names of predicates, for all unobserved atoms of each. Of
        the predicate ``opened`` all that is known is left out, to see how well rules infer it.
        """
        network = self.network_
        facts = network.facts
        rows = read_queries(facts, queries)
        sums = {name: np.zeros(len(columns[0])) for name, columns in rows.items()}
        counts = {name: np.zeros(len(columns[0])) for name, columns in rows.items()}
        network.convergence.clear()
        random = np.random.default_rng(self.seed)
        worlds = facts.worlds()
        with torch.no_grad():
            for done, world in enumerate(worlds, start=1):
                for members in cover_rows(network, world, rows, random):
                    logits = network.infer(members, network.potentials(members, opened=opened), opened=opened)
                    for name, columns in rows.items():
                        index, inside = facts.find_rows(name, columns, members)
                        sums[name][inside] += logits[name][index].double().numpy()
                        counts[name][inside] += 1
                self._progress("inferring", done, len(worlds))
        for name, count in counts.items():
            if not count.all():
                raise DataError(f"{int((count == 0).sum())} queries of {name} name entities of different worlds")
        self.convergence_ = tuple(network.convergence)
        labels = KnowledgeBase(facts.kb.domains, facts.declared.values(), {})
        return Marginals(labels, rows, {name: sums[name] / counts[name] for name in rows})

    def explain(self, atom: str, *, top: int = 5) -> str:
        """Say which formulas and groundings moved an atom most, in a world that is inferred at once."""
        worlds = self.network_.facts.worlds()
        if len(worlds) != 1:
            raise DataError(f"explain is for one world, and there are {len(worlds)}")
        with torch.no_grad():
            return self.network_.explain(worlds[0], atom, top=top)

    @property
    def _progress(self) -> Progress:
        return self.progress or (lambda stage, done, total: None)
