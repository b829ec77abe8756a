"""What torch.compile and torch.export make of a layer is the layer: values and gradients, static and dynamic."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim, export

from rulewright.inject import ConsistencyLoss, LogicLayer

RULES = """
    predicate tag(token) in {o, begin, inside}.
    predicate near(token, token).
    predicate kind(token) in {a, b}.
    closed next. closed kind.
    learn next(T, U) & tag(U) in {inside} => tag(T) in {begin, inside}.
    0.7 near(T, U) & near(U, V) => near(T, V).
    0.3 near(T, U) & kind(U) in {a} => tag(T) in {o}.
    0.2 near(T, T) & near(T, U) & T != U => tag(T) in {o}.
"""


def draw(batch, size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = {
        "tag": torch.randn(batch, size, 3, generator=generator),
        "near": torch.randn(batch, size, size, generator=generator),
    }
    following = torch.rand(size, size, generator=generator) < 0.3
    kinds = torch.randint(0, 2, (batch, size), generator=generator)
    return logits, {"next": following, "kind": kinds}, {"token": torch.rand(batch, size, generator=generator) < 0.8}


def run(function, layer, logits, *others):
    """Return outputs and gradients."""
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in logits.items()}
    output = function(leaves, *others)
    total = sum(tensor.square().sum() for tensor in output.values())
    gradients = torch.autograd.grad(total, [*leaves.values(), *layer.parameters()])
    return [*output.values(), *gradients]


def assert_same(function, layer, *inputs):
    for found, wanted in zip(run(function, layer, *inputs), run(layer, layer, *inputs), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()


@pytest.mark.parametrize("dynamic", [False, True, None])
@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
def test_compiled_equals_eager(backend, dynamic):
    layer = LogicLayer(RULES, iterations=1)
    compiled = torch.compile(layer, backend=backend, fullgraph=True, dynamic=dynamic)
    for batch, size in ((2, 3), (3, 7), (1, 1)):  # a size that is also the number of classes
        assert_same(compiled, layer, *draw(batch, size))


@pytest.mark.parametrize("dynamic", [True, None])
def test_one_graph_serves_all_sizes(dynamic):
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    layer = LogicLayer(RULES, iterations=1)
    compiled = torch.compile(layer, backend=counter, fullgraph=True, dynamic=dynamic)
    for size in range(4, 9):
        compiled(*draw(size + 1, size))
    assert counter.frame_count == (1 if dynamic else 2)


INDUCTOR = """
    predicate tag(token) in {o, begin, inside}.
    1.5 tag(T) in {begin} & next(T, U) => tag(U) in {inside}.
    0.5 next(T, U) & p(T) => p(U).
    learn p(T) & near(T, U) => p(U).
    -0.7 near(T, U) & near(U, V) => near(T, V).
    closed next.
"""


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "dynamic"), [((), False), ((3,), True)])
def test_inductor(batch, dynamic):
    layer = LogicLayer(INDUCTOR, iterations=1)
    compiled = torch.compile(layer, fullgraph=True, dynamic=dynamic)
    for size in (4, 6) if dynamic else (4,):
        logits = {
            "tag": torch.randn(*batch, size, 3),
            "p": torch.randn(*batch, size),
            "near": torch.randn(*batch, size, size),
        }
        mask = {"token": torch.rand(*batch, size) < 0.8}
        assert_same(compiled, layer, logits, {"next": torch.rand(size, size) < 0.5}, mask)


@pytest.mark.slow
def test_inductor_with_hard_formulas_and_relations():
    layer = LogicLayer("2.0 a(X, Y) & b(Y, Z) => a(X, Z). hard a(X, Y) => b(Y, X).", relations=["a", "b"], iterations=2)
    compiled = torch.compile(layer, fullgraph=True)
    logits, mask = torch.randn(2, 4, 4, 2, requires_grad=True), torch.rand(2, 4) < 0.8
    found, wanted = compiled(logits, mask), layer(logits, mask)
    torch.testing.assert_close(found, wanted)
    gradients = [torch.autograd.grad(output.square().sum(), logits)[0] for output in (found, wanted)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_constants_orders_and_stored_evidence_compile():
    layer = LogicLayer(
        "predicate a(p, p). predicate n(num). predicate b(num). "
        "hard a(X, ann) & a(X, Y) => a(Y, X). 1.0 a(X, X) & n(M) & n(K) & M < K => b(K).",
        {"p": ["ann", "bob"], "num": ["1", "2", "5"]},
        iterations=2,
        evidence={"n": torch.tensor([True, False, True])},
    )
    compiled = torch.compile(layer, backend="eager", fullgraph=True, dynamic=True)
    for batch in (2, 3):
        assert_same(compiled, layer, {"a": torch.randn(batch, 2, 2), "b": torch.randn(batch, 3)})


def test_several_calls_in_one_graph():
    layer = LogicLayer("0.5 r(X, Y) => r(Y, X). hard r(X, Y) & r(Y, Z) => r(X, Z).", iterations=2)

    def twice(logits, mask):
        return layer({"r": layer({"r": logits})["r"]}, mask={"entity": mask})["r"]

    compiled = torch.compile(twice, backend="eager", fullgraph=True)
    logits, mask = torch.randn(2, 4, 4), torch.rand(2, 4) < 0.8
    torch.testing.assert_close(compiled(logits, mask), twice(logits, mask))


@pytest.mark.parametrize("open_size", [False, True])
@pytest.mark.parametrize("strict", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_export_with_open_batch_and_size(strict, open_size):
    layer = LogicLayer(RULES, iterations=1)
    batch, size = Dim("batch", min=1, max=4096), Dim("size", min=2, max=512) if open_size else Dim.STATIC
    shapes = (
        {"tag": (batch, size, Dim.STATIC), "near": (batch, size, size)},
        {"next": (size, size), "kind": (batch, size)},
        {"token": (batch, size)},
    )
    exported = export(layer, draw(2, 5), dynamic_shapes=shapes, strict=strict).module()
    other = draw(6, 9 if open_size else 5, seed=1)
    wanted = layer(*other)
    for name, tensor in exported(*other).items():
        torch.testing.assert_close(tensor, wanted[name])


RULES_OF_PAIRS = "0.9 :: a(X, Z) :- a(X, Y), b(Y, Z). 0.8 :: b(X, Y) :- b(Y, X)."


class PairModel(torch.nn.Module):
    """A model with a layer and a loss, as the Trainer takes it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.score = torch.nn.Linear(4, 2)
        self.layer = LogicLayer(RULES_OF_PAIRS, relations=["a", "b"], iterations=2, learnable=True)
        self.consistency = ConsistencyLoss(RULES_OF_PAIRS, relations=["a", "b"])

    def forward(self, features, mask, labels=None):
        given = self.score(features)
        logits = self.layer(given, mask)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
        return {"loss": loss + 0.1 * self.consistency(given, mask), "logits": logits}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_trainer_compiles_a_model_with_layer_and_loss(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    # A folder of tests has the name of the package that the Trainer would look for
    monkeypatch.setattr("transformers.trainer.is_datasets_available", lambda: False)
    generator = torch.Generator().manual_seed(1)
    samples = [
        {
            "features": torch.randn(4, 4, 4, generator=generator),
            "mask": torch.arange(4) < 3 + number % 2,
            "labels": (torch.rand(4, 4, 2, generator=generator) < 0.5).float(),
        }
        for number in range(8)
    ]
    found = []
    for options in ({}, {"torch_compile": True}):
        torch.compiler.reset()
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path),
            num_train_epochs=2,
            per_device_train_batch_size=4,
            learning_rate=1e-2,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            seed=0,
            **options,
        )
        model = PairModel()
        trainer = transformers.Trainer(model=model, args=arguments, train_dataset=samples)
        found.append(trainer.train().training_loss)
        found.append(model.layer.weights.learned.detach().clone())
    assert found[2] == pytest.approx(found[0], rel=1e-4)
    torch.testing.assert_close(found[3], found[1], rtol=1e-3, atol=1e-3)
