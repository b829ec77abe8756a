"""Markov logic for people with files instead of networks: rules and facts in, probabilities out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from rulewright.checks import Progress
from rulewright.data import KnowledgeBase
from rulewright.data.facts import Column
from rulewright.errors import DataError, MemoryLimitError
from rulewright.inject.layer.schedule import Convergence
from rulewright.learn.markov.domains import draw_sample
from rulewright.learn.markov.encoders import Atoms
from rulewright.learn.markov.facts import GroundFacts, Queries, declare_types, find_crossing, read_queries
from rulewright.learn.markov.marginals import Marginals
from rulewright.learn.markov.network import MarkovNetwork
from rulewright.learn.markov.parameters import MarkovParameters
from rulewright.learn.markov.sampled_training import SampledTraining
from rulewright.learn.markov.scope import Scope, infer_world, plan_scope
from rulewright.learn.markov.training import learn_weights, train_encoder


class MarkovLogic(MarkovParameters):
    """Infers how probable atoms are, from weighted rules and observed facts.

    ``P(v) ∝ exp( Σ_i φ_i v_i + Σ_f w_f · (number of groundings of f that hold) )`` over all atoms that are not
    observed, by mean field in a `LogicLayer`. The potentials φ come from an encoder; a world (document) is a network of
    its own, all share weights and encoder.

    Args:
        rules: weighted, hard and ``learn`` formulas, and rules. Predicates that they declare closed are.
        encoder: ``"none"`` is a constant for each predicate (``prior``); ``"embedding"`` learns a state for each
            entity; ``"gnn"`` is a small graph network over the observed facts. Both score atoms by a neural tensor
            network.
        training: of the encoder. Besides the cross-entropy of observed facts, ``"distill"`` moves its log-odds to the
            layer's output, kept within ±``limit``, and ``"end_to_end"`` infers hidden facts through the layer.
            ``"sampled"`` raises the expected number of groundings that hold, by weight, and the entropy, on batches of
            groundings that are drawn near observed facts, each formula as often as any other: the encoder, or without
            one a table of atoms, becomes itself the mean field of averaged messages, and the layer is not asked. It is
            the published training of ExpressGNN and LogicMP on graphs (there: embedding of size 128, 200 epochs, rate
            0.0005).
        iterations, damping, tolerance: of the layer. Undamped messages often oscillate.
        closed: predicates whose unobserved atoms are false, or ``"listed"``: those with true facts and no false ones,
            but what is asked for.
        prior: log-odds of what nothing else is known of, for all or by predicate; ``"density"`` takes them from how
            many facts there are among all possible ones.
        messages, draws, observed_odds: whether an atom gets the sum or the mean of the messages of its groundings, and
            over which; see `LogicLayer`.
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
        epochs, rate, hidden: of the encoder's training, whose rate falls to 0 in the end, and the share of facts that
            it hides from a graph network. An epoch is one step, of ``"sampled"`` 100 batches.
        size, slices: of an encoder's states, and of its neural tensor network.
        batch_size, bias: how many groundings a batch of ``"sampled"`` holds at most, and how probably an atom's
            entities are those of a known fact.
        grounding, hops: ``"auto"`` infers all atoms where that fits into memory and takes less than 20 seconds, and
            else candidate atoms: what is observed, what is asked for, and what formulas reach from these in so many
            hops. All others rest at the prior, those of closed predicates at false.
        sample: the most entities of a type that are inferred together, in samples that share facts; an atom that is in
            several gets the mean of its log-odds. None takes all.
        memory_limit, time_limit: bytes, or a text such as ``"2GB"``, and seconds that inference may take; what would
            take more is refused before it starts. None is half of the machine's memory, and any time.
        progress: called with a stage, how much of it is done, and of how much; see `rulewright.checks.Progress`.

    ``rules_`` has the weights that were learned, ``scopes_`` what of each world the last prediction inferred, and how,
    ``convergence_`` how the iterations of the last prediction went, for each network or sample, ``losses_`` the
    training, ``note_`` whether its batches are smaller than was asked for.

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
    scopes_: tuple[Scope, ...]
    network_: MarkovNetwork

    def fit(self, kb: KnowledgeBase, folder: str | os.PathLike[str] | None = None) -> Self:
        """Take up the facts; learn weights and train the encoder where the parameters say so.

        With a ``folder``, the training of the encoder is saved there after every epoch, and fitting the same again goes
        on from there, bit for bit.
        """
        self._check_before_fit(kb)
        if folder is not None and self.training == "none":
            raise DataError("a folder keeps the training of an encoder, and training is 'none'")
        facts = GroundFacts(kb, declare_types(self.rules, kb))
        facts.close(self._closed_predicates(facts))
        network = MarkovNetwork(facts, self)
        random = np.random.default_rng(self.seed)
        losses, note = {}, ""
        if self.scaling == "messages":
            world = facts.worlds()[0]
            if plan_scope(network, world) is None:
                raise MemoryLimitError(
                    "scaling='messages' needs all atoms, which are too many here; take messages='mean'"
                )
            network.scale(draw_sample(network, world, random))
        if network.weights.learned is not None:
            losses["weights"] = learn_weights(network, random, self._progress)
        if self.training == "sampled":
            training = SampledTraining(network)
            losses["encoder"], note = training.run(folder, self._progress), training.note
        elif self.training != "none":
            losses["encoder"] = train_encoder(network, folder, self._progress)
        self.network_, self.rules_ = network, network.rules
        self.losses_, self.convergence_, self.scopes_, self.note_ = losses, (), (), note
        return self

    def predict(self, queries: Queries, *, opened: str | None = None) -> Marginals:
        """Return the marginals of the atoms asked for.

        ``queries`` is a knowledge base, whose true and false facts are the atoms (which is which is never looked at),
        or atoms: ``"smokes(ann)"``, ``("smokes", "ann")``; or names of predicates, for all unobserved atoms of each. Of
        an atom with classes each has a marginal, unless one is named: ``"label(t1) in {'B-PER'}"``, ``("label", "t1",
        "B-PER")``. Of the predicate ``opened`` all that is known is left out, to see how well rules infer it.
        """
        network = self.network_
        facts = network.facts
        network.close(self._closed_predicates(facts, asked=facts.declared))
        rows = read_queries(facts, queries)
        network.close(self._closed_predicates(facts, asked=rows))
        labels = KnowledgeBase(facts.kb.domains, facts.declared.values(), {})
        atoms = {name: columns[: facts.declared[name].arity] for name, columns in rows.items()}
        for name, columns in atoms.items():
            crossing = find_crossing(facts.kb, columns)
            if len(crossing):
                raise DataError(f"{len(crossing)} queries of {name} name entities of different worlds")
        network.convergence.clear()
        with torch.no_grad():
            logits, self.scopes_ = self._infer(atoms, opened)
        self.convergence_ = tuple(network.convergence)
        picked = {}
        for name, columns in rows.items():
            classes = columns[-1] if facts.declared[name].classes is not None else None
            picked[name] = _pick_classes(logits[name], classes)
        return Marginals(labels, rows, picked, self.scopes_)

    def _closed_predicates(self, facts: GroundFacts, asked: Iterable[str] = ()) -> set[str]:
        """Return what the rules, the facts and the parameters close; of what is ``"listed"``, what is not asked for."""
        closed = {name for name in (*self.rules.closed, *facts.kb.closed) if name in facts.declared}
        return closed | ({*facts.listed_predicates()}.difference(asked) if self.closed == "listed" else {*self.closed})

    def _infer(self, atoms: Atoms, opened: str | None) -> tuple[dict[str, torch.Tensor], tuple[Scope, ...]]:
        """Return the log-odds of atoms: what sampled training has learned, or the layer's, world by world.

        What no rule names has its potential.
        """
        network, facts = self.network_, self.network_.facts
        if self.training == "sampled":
            if opened is not None:
                raise DataError(f"sampled training has learned from the facts of {opened}: leave them out before fit")
            self._progress("inferring", 1, 1)
            return network.clamp(atoms, network.encoder.score(atoms)), ()
        alone = {name: columns for name, columns in atoms.items() if name not in facts.used}
        answers = network.clamp(alone, network.potentials_of(alone, opened=opened), opened=opened)
        asked = {name: columns for name, columns in atoms.items() if name in facts.used}
        scopes: list[Scope] = []
        random = np.random.default_rng(self.seed)
        worlds = facts.worlds()
        for done, world in enumerate(worlds, start=1):
            rows = {name: facts.find_rows(name, columns, world)[1] for name, columns in asked.items()}
            here = {name: tuple(column[rows[name]] for column in asked[name]) for name in rows if rows[name].any()}
            if here:
                scope, logits = infer_world(network, world, here, opened, random)
                scopes.append(scope)
                for name, values in logits.items():
                    if name not in answers:
                        answers[name] = torch.empty(len(rows[name]), *values.shape[1:], dtype=values.dtype)
                    answers[name][torch.from_numpy(rows[name])] = values
            self._progress("inferring", done, len(worlds))
        return answers, tuple(scopes)

    def explain(self, atom: str, *, top: int = 5) -> str:
        """Say which formulas and groundings moved an atom most, in a world that is inferred at once."""
        if self.training == "sampled":
            raise DataError("explain is for messages of the layer, which training 'sampled' does without")
        worlds = self.network_.facts.worlds()
        if len(worlds) != 1:
            raise DataError(f"explain is for one world, and there are {len(worlds)}")
        with torch.no_grad():
            return self.network_.explain(worlds[0], atom, top=top)

    @property
    def _progress(self) -> Progress:
        return self.progress or (lambda stage, done, total: None)


def _pick_classes(logits: torch.Tensor, classes: Column | None) -> npt.NDArray[np.float64]:
    """Return the log-odds of atoms, or of each one's class: ``x_k − log Σ_{j ≠ k} exp x_j``."""
    if classes is None:
        return logits.double().numpy()
    chosen = torch.from_numpy(np.asarray(classes, dtype=np.int64))[:, None]
    by_class = logits.double()
    others = by_class.scatter(1, chosen, -torch.inf).logsumexp(dim=1)
    return (by_class.gather(1, chosen)[:, 0] - others).numpy()
