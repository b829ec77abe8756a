"""The fixed point by trying everything: every rule on every assignment, again and again until nothing changes."""

from __future__ import annotations

from math import prod

from engine.oracle import Oracle

from rulewright.logic import Comparison, Literal, Membership


class Naive:
    """Facts with scores; ``facts[key] = (score, numbers of the rules, round)`` for what is new."""

    def __init__(self, kb, rules, *, how="max", min_score=0.0, max_rounds=None):
        self.rules, self.how, self.min_score = rules, how, min_score
        self.oracle = Oracle(kb)
        self.blocked = {name: self.oracle.true[name] | self.oracle.false[name] for name in kb.predicates}
        self.classes = {name for name, each in kb.predicates.items() if each.classes is not None}
        self.scores: dict[tuple, float] = {}
        self.given: dict[tuple, dict[int, float]] = {}
        self.first: dict[tuple, int] = {}
        self.rounds = 0
        if max_rounds == 1:
            self._apply_once(kb)
        else:
            for level in stratified(rules):
                if not self._settle(level, max_rounds):
                    break
        self.facts = {
            key: (score, set(self.given[key]), self.first[key])
            for key, score in self.scores.items()
            if score >= min_score
        }

    def _apply_once(self, kb) -> None:
        """Apply each rule to the known facts; what must be absent is so from what other rules conclude too.

        Where it rests on the head itself, there is no order of the rules, and it must be absent from the known facts.
        """
        known, done = Oracle(kb), set()
        bodies = [(rule.head, body, number) for number, rule in enumerate(self.rules) for body in rule.alternatives()]

        def rests_on(name) -> set:
            names, size = {name}, 0
            while size < len(names):
                size = len(names)
                for head, body, _ in bodies:
                    if head.predicate in names:
                        names |= {each.unit.predicate for each in body if not isinstance(each.unit, Comparison)}
            return names

        def conclude(name) -> None:
            if name in done:
                return
            done.add(name)
            found: dict[tuple, dict[int, float]] = {}
            for head, body, number in bodies:
                if head.predicate != name:
                    continue
                settled = []
                for each in body:
                    is_absent = not each.positive and not isinstance(each.unit, Comparison)
                    if is_absent and name not in rests_on(each.unit.predicate):
                        conclude(each.unit.predicate)
                        settled.append(each)
                for assignment in known.groundings(body):
                    key = self._key(head, assignment)
                    confidence = self.rules[number].confidence
                    if self._known(key) or not all(self.oracle._holds(each, assignment, {}) for each in settled):
                        continue
                    if self.how == "noisy-or" or confidence >= self.min_score:
                        found.setdefault(key, {})[number] = confidence
            for key, by_rule in found.items():
                doubt = prod(1 - each for each in by_rule.values())
                score = 1 - doubt if self.how == "noisy-or" else max(by_rule.values())
                if score >= self.min_score:
                    self.scores[key], self.given[key], self.first[key] = score, by_rule, 1
                    self.oracle.true[name].add(tuple(key[1:]))

        for head, _, _ in bodies:
            conclude(head.predicate)
        self.rounds = int(bool(self.scores))

    def _settle(self, numbers, max_rounds) -> bool:
        while True:
            found = self._round(numbers)
            if not found:
                break
            if max_rounds is not None and self.rounds >= max_rounds:
                return False
            self.rounds += 1
            better = False
            for key, by_rule in found.items():
                if self.how == "noisy-or":
                    score = 1 - prod(1 - each for each in by_rule.values())
                else:
                    score = max(by_rule.values())
                for number, each in by_rule.items():
                    before = self.given.setdefault(key, {})
                    before[number] = max(each, before.get(number, 0))
                self.first.setdefault(key, self.rounds)
                if score > self.scores.get(key, -1):
                    self.scores[key], better = score, True
            for name, *args in found:
                self.oracle.true[name].add(tuple(args))
            if not better:
                break
        if self.how == "noisy-or":
            for key, score in self.scores.items():
                if score < self.min_score:
                    self.oracle.true[key[0]].discard(key[1:])
        return True

    def _round(self, numbers):
        """Return what every rule gives that says something new."""
        found: dict[tuple, dict[int, float]] = {}
        for number in numbers:
            rule = self.rules[number]
            for body in rule.alternatives():
                for assignment in self.oracle.groundings(body):
                    key = self._key(rule.head, assignment)
                    if self._known(key) or (self.how == "noisy-or" and key in self.scores):
                        continue
                    score = rule.confidence * prod(self._best(each, assignment) for each in body)
                    if self.how != "noisy-or" and (
                        score < self.min_score or score <= self.given.get(key, {}).get(number, -1)
                    ):
                        continue
                    by_rule = found.setdefault(key, {})
                    by_rule[number] = max(score, by_rule.get(number, 0))
        return found

    def _key(self, head, assignment):
        args = tuple(self.oracle._value(term, assignment) for term in head.args)
        return (head.predicate, *args, *(head.classes[:1] if isinstance(head, Membership) else ()))

    def _known(self, key) -> bool:
        name, *args = key
        if name in self.classes:
            return any(fact[:-1] == tuple(args[:-1]) for fact in self.blocked[name])
        return tuple(args) in self.blocked[name]

    def _best(self, literal: Literal, assignment) -> float:
        unit = literal.unit
        if isinstance(unit, Comparison) or not literal.positive:
            return 1.0
        args = tuple(self.oracle._value(term, assignment) for term in unit.args)
        values = [(each,) for each in unit.classes] if isinstance(unit, Membership) else [()]
        keys = [
            (unit.predicate, *args, *value) for value in values if (*args, *value) in self.oracle.true[unit.predicate]
        ]
        return max(self.scores.get(key, 1.0) for key in keys)


def stratified(rules) -> list[list[int]] | None:
    """Number the strata by trial: None where a predicate rests on its own absence."""
    heads = {rule.head.predicate for rule in rules}
    level = dict.fromkeys(heads, 0)
    for _ in range(len(heads) + 1):
        before = dict(level)
        for rule in rules:
            for body in rule.alternatives():
                for each in body:
                    if not isinstance(each.unit, Comparison) and each.unit.predicate in heads:
                        needed = level[each.unit.predicate] + (not each.positive)
                        level[rule.head.predicate] = max(level[rule.head.predicate], needed)
        if level == before:
            numbers = sorted(set(level.values()))
            return [[n for n, rule in enumerate(rules) if level[rule.head.predicate] == each] for each in numbers]
    return None
