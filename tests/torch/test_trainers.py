"""Trainers that know nothing about this optimizer train with it, show its rate, and resume where they stopped."""

import os
import socket
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from samuel.torch import Samuel

ROWS, BATCH = 128, 16
BATCHES = ROWS // BATCH

# Of Lightning's own: that it asks torch for something in an old way, that it would load data in more processes, and
# that a resumed run keeps its checkpoints where the first one did.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '(train|val)_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Nothing here needs the network, no package is to phone home, and none leaves settings behind."""

    def refuse(_, address):
        raise OSError(f"a test wanted to connect to {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK")
    with patch.dict(os.environ, dict.fromkeys(names, "1")):
        yield


# Inputs of two classes, and a network that can tell them apart.


def data():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(ROWS, 6, generator=generator)
    return TensorDataset(inputs, (inputs[:, 0] * inputs[:, 1] > 0).long())


def batches():
    return DataLoader(data(), batch_size=BATCH)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))


def loss_of(model):
    """Over all data."""
    with torch.no_grad():
        inputs, classes = data().tensors
        return torch.nn.functional.cross_entropy(model(inputs), classes).item()


def everything(model, optimizer):
    """All that a resumed run must have in common with an unbroken one."""
    state = optimizer.state_dict()["state"]
    found = {f"model {name}": value for name, value in model.state_dict().items()}
    return found | {f"{i} {name}": value for i, entries in state.items() for name, value in entries.items()}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert torch.equal(value, expected[name]), name


# Lightning


@pytest.fixture
def lightning():
    return pytest.importorskip("lightning.pytorch")


@pytest.fixture
def fit(lightning, tmp_path):
    """Fit a module in some epochs; returns it and the trainer."""

    class Module(lightning.LightningModule):
        def __init__(self, scheduled):
            super().__init__()
            self.network, self.scheduled, self.rates, self.tests = network(), scheduled, [], []

        def forward(self, inputs):
            return self.network(inputs)

        def training_step(self, batch, _):
            inputs, classes = batch
            self.rates.append(float(self.optimizers().param_groups[0]["effective_lr"]))
            self.log("effective_lr", self.rates[-1])
            return torch.nn.functional.cross_entropy(self(inputs), classes)

        def configure_optimizers(self):
            optimizer = Samuel(self.network)
            if not self.scheduled:
                return optimizer
            scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, 1.0, total_iters=BATCHES)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    class Tested(Module):
        def validation_step(self, batch, _):
            with self.optimizers().averaged():
                self.tests.append(self(batch[0]))

    def fitted(epochs, scheduled=False, ckpt_path=None, tested=False, **options):
        module = (Tested if tested else Module)(scheduled)
        usual = {"logger": False, "enable_checkpointing": False, "default_root_dir": tmp_path}
        quiet = {"enable_progress_bar": False, "enable_model_summary": False}
        trainer = lightning.Trainer(accelerator="cpu", devices=1, max_epochs=epochs, **quiet, **usual | options)
        loaders = (batches(), batches() if tested else None)
        trainer.fit(module, *loaders, ckpt_path=ckpt_path, weights_only=None if ckpt_path is None else True)
        return module, trainer

    return fitted


def test_lightning_trains_and_logs_the_rate(fit):
    module, trainer = fit(epochs=20)
    assert loss_of(module) < 0.2 * loss_of(network())
    assert trainer.callback_metrics["effective_lr"] == pytest.approx(module.rates[-1])
    assert max(module.rates) > 3 * module.rates[0]


def test_lightning_tests_the_averaged_parameters_and_trains_on(fit):
    module, trainer = fit(epochs=5, tested=True)
    untested, _ = fit(epochs=5)
    inputs = torch.cat([batch[0] for batch in batches()])
    with torch.no_grad(), trainer.optimizers[0].averaged():
        expected = module(inputs)
    last = torch.cat(module.tests[-BATCHES:])
    torch.testing.assert_close(last, expected)
    with torch.no_grad():
        assert (module(inputs) - last).abs().max() > 1e-3
    assert module.rates == untested.rates


def test_lightning_accumulates_clips_and_schedules_in_mixed_precision(lightning, fit, tmp_path):
    logger = lightning.loggers.CSVLogger(tmp_path)
    monitor = lightning.callbacks.LearningRateMonitor(logging_interval="step", log_momentum=True)
    watch = {"logger": logger, "callbacks": [monitor], "log_every_n_steps": 1}
    options = {"accumulate_grad_batches": 2, "gradient_clip_val": 1.0, "precision": "bf16-mixed"}
    module, trainer = fit(40, scheduled=True, **watch, **options)
    assert loss_of(module) < 0.2 * loss_of(network())
    assert trainer.global_step == 40 * BATCHES // 2
    # The first of two batches takes no step, and the scheduler's multiplier is what the monitor shows.
    assert module.rates[0] == module.rates[1] != module.rates[2] == module.rates[3]
    logged = np.genfromtxt(f"{logger.log_dir}/metrics.csv", delimiter=",", names=True, deletechars="")
    multiplier = logged["lr-Samuel/pg1"][np.isfinite(logged["lr-Samuel/pg1"])]
    assert multiplier[0] == 0.5
    assert multiplier[-1] == 1.0
    assert np.nanmax(logged["effective_lr"]) == pytest.approx(max(module.rates[1::2]))


def test_lightning_resumes_to_the_bit(lightning, fit, tmp_path):
    def keep():
        return lightning.callbacks.ModelCheckpoint(tmp_path / "saved", filename="{epoch}", save_top_k=-1)

    unbroken, trainer = fit(4, scheduled=True, callbacks=[keep()], enable_checkpointing=True)
    expected = everything(unbroken, trainer.optimizers[0])
    saved = tmp_path / "saved" / "epoch=1.ckpt"
    resumed, trainer = fit(4, scheduled=True, callbacks=[keep()], enable_checkpointing=True, ckpt_path=saved)
    assert_same(everything(resumed, trainer.optimizers[0]), expected)
    assert resumed.rates == unbroken.rates[2 * BATCHES :]


# Accelerate, by itself and under the Trainer of Hugging Face


@pytest.fixture
def accelerate():
    """All accelerators share a state; it is forgotten afterwards."""
    module = pytest.importorskip("accelerate")
    yield module
    module.state.AcceleratorState._reset_state(reset_partial_state=True)
    module.state.GradientState._reset_state()


class Accelerated:
    """The loop that users of Accelerate write."""

    def __init__(self, accelerator):
        model = network()
        optimizer = Samuel(model)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, 1.0, total_iters=BATCHES)
        self.accelerator, self.rates = accelerator, []
        self.prepared = accelerator.prepare(model, optimizer, batches(), scheduler)
        self.bare = model, optimizer

    def epochs(self, count):
        model, optimizer, loader, scheduler = self.prepared
        for _ in range(count):
            for inputs, classes in loader:
                with self.accelerator.accumulate(model):
                    loss = torch.nn.functional.cross_entropy(model(inputs), classes)
                    self.accelerator.backward(loss)
                    if self.accelerator.sync_gradients:
                        self.accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
                self.rates.append(optimizer.param_groups[0]["effective_lr"])


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_accelerate_trains_accumulates_and_clips(accelerate, precision):
    run = Accelerated(accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2, mixed_precision=precision))
    run.epochs(40)
    model, optimizer = run.bare
    assert loss_of(model) < 0.2 * loss_of(network())
    assert run.rates[0] == Samuel(network()).param_groups[0]["effective_lr"] != run.rates[1]
    assert run.rates[-1] == optimizer.param_groups[0]["effective_lr"]
    assert max(run.rates) > 3 * run.rates[0]
    with run.prepared[1].optimizer.averaged():
        assert loss_of(model) < 0.2 * loss_of(network())


def test_accelerate_resumes_to_the_bit(accelerate, tmp_path):
    run = Accelerated(accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2))
    run.epochs(5)
    run.accelerator.save_state(tmp_path / "saved")
    run.epochs(5)
    resumed = Accelerated(accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2))
    resumed.accelerator.load_state(tmp_path / "saved")
    resumed.epochs(5)
    assert_same(everything(*resumed.bare), everything(*run.bare))
    assert resumed.rates == run.rates[5 * BATCHES :]


# The Trainer of Hugging Face, with a tiny transformer that learns whether a sequence contains some token.


@pytest.fixture
def transformers(accelerate):
    return pytest.importorskip("transformers")


def sequences():
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 12, (ROWS, 6), generator=generator)
    return [{"input_ids": row, "labels": (row == 3).any().long()} for row in tokens]


@pytest.fixture
def bert(transformers):
    def make():
        torch.manual_seed(0)
        sizes = {"vocab_size": 12, "hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 6}
        config = transformers.BertConfig(**sizes, num_hidden_layers=2, num_attention_heads=2, num_labels=2)
        return transformers.BertForSequenceClassification(config)

    return make


@pytest.fixture
def trainer_of(transformers, tmp_path):
    """A trainer of a model, quiet and on the CPU, that notes the rates in use."""

    class Watch(transformers.TrainerCallback):
        def __init__(self):
            self.rates = []

        def on_optimizer_step(self, args, state, control, optimizer=None, **others):
            self.rates.append(optimizer.param_groups[0]["effective_lr"])

    def make(model, steps, folder="run", optimizers=(None, None), optimizer_cls_and_kwargs=None, **options):
        usual = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_strategy": "no", "seed": 0}
        arguments = transformers.TrainingArguments(
            str(tmp_path / folder), max_steps=steps, per_device_train_batch_size=BATCH, **usual | options
        )
        watch = Watch()
        trainer = transformers.Trainer(
            model,
            arguments,
            train_dataset=sequences(),
            optimizers=optimizers,
            optimizer_cls_and_kwargs=optimizer_cls_and_kwargs,
            callbacks=[watch],
        )
        trainer.rates = watch.rates
        return trainer

    return make


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_hugging_face_trains_and_shows_the_rate(bert, trainer_of):
    model = bert()
    optimizer = Samuel(model)
    trainer = trainer_of(model, 160, optimizers=(optimizer, None), logging_steps=16, lr_scheduler_type="constant")
    trainer.train()
    assert losses(trainer)[-1] < 0.2 * losses(trainer)[0]
    assert trainer.rates[-1] == optimizer.param_groups[0]["effective_lr"]
    assert max(trainer.rates) > 3 * trainer.rates[0]


def test_hugging_face_schedules_accumulates_and_clips_in_mixed_precision(bert, trainer_of):
    model = bert()
    optimizer = Samuel(model)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, 1.0, total_iters=20)
    options = {"gradient_accumulation_steps": 2, "max_grad_norm": 1.0, "bf16": True, "logging_steps": 16}
    trainer = trainer_of(model, 160, optimizers=(optimizer, scheduler), **options)
    trainer.train()
    assert losses(trainer)[-1] < 0.2 * losses(trainer)[0]
    assert trainer.state.log_history[0]["learning_rate"] < 0.9
    assert trainer.state.log_history[-2]["learning_rate"] == pytest.approx(1.0)


def test_hugging_face_makes_the_optimizer_by_itself(bert, trainer_of):
    """With two groups of parameters without names, as biases are not to decay: roles are guesses, and said to be."""
    options = {"weight_decay": 0.2, "logging_steps": 16, "lr_scheduler_type": "constant"}
    trainer = trainer_of(bert(), 160, optimizer_cls_and_kwargs=(Samuel, {"lr": 1.0}), **options)
    with pytest.warns(UserWarning, match="the roles of .* are guesses"):
        trainer.train()
    assert losses(trainer)[-1] < 0.2 * losses(trainer)[0]
    decays = {(group["role"], group["weight_decay"]) for group in trainer.optimizer.param_groups}
    assert decays >= {("matrix", 0.2), ("table", 0.2), ("vector", 0.0)}


def test_hugging_face_resumes_to_the_bit(bert, trainer_of, tmp_path):
    def trainer_and_optimizer(folder, **options):
        model = bert()
        optimizer = Samuel(model)
        return trainer_of(model, 24, folder, optimizers=(optimizer, None), **options), optimizer

    unbroken, optimizer = trainer_and_optimizer("unbroken", save_strategy="steps", save_steps=13)
    unbroken.train()
    expected = everything(unbroken.model, optimizer)
    resumed, optimizer = trainer_and_optimizer("resumed")
    resumed.train(resume_from_checkpoint=str(tmp_path / "unbroken" / "checkpoint-13"))
    assert_same(everything(resumed.model, optimizer), expected)
    assert resumed.rates == unbroken.rates[13:]
