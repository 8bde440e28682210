"""With the hooks, trainers of others evaluate, choose and save the averaged parameters, and log what is used."""

from pathlib import Path

import pytest
import torch

from samuel.torch import Samuel
from tests.torch.clients import BATCH, BATCHES, batches, data, loss_of, network

EPOCHS = 4

# Of Lightning's own: that it asks torch for something in an old way, that it would load data in more processes, and
# that a resumed run keeps its checkpoints where the first one did.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '(train|val)_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:The dirpath has changed from"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]


def parameters_of(model):
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()


# The Trainer of Hugging Face


class Classifier(torch.nn.Module):
    """What the Trainer asks of a model."""

    def __init__(self):
        super().__init__()
        self.network = network()

    def forward(self, inputs, labels=None):
        logits = self.network(inputs)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.fixture
def trainer_of(tmp_path, monkeypatch):
    """A quiet trainer on the CPU with the callback, and its model and optimizer."""
    transformers = pytest.importorskip("transformers")
    accelerate = pytest.importorskip("accelerate")
    from samuel.torch.hooks.trainer import TrainerCallback

    for name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
        monkeypatch.setenv(name, "1")
    rows = [{"inputs": inputs, "labels": label} for inputs, label in data()]

    def make(folder="run", optimizer_of=Samuel, **options):
        model = Classifier()
        usual = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_strategy": "no", "seed": 0}
        usual |= {"lr_scheduler_type": "constant", "max_grad_norm": 0.0, "eval_strategy": "epoch"}
        batch = {"per_device_train_batch_size": BATCH, "per_device_eval_batch_size": 128}
        arguments = transformers.TrainingArguments(
            str(tmp_path / folder), num_train_epochs=EPOCHS, **usual | batch | options
        )
        optimizer = optimizer_of(model)
        trainer = transformers.Trainer(
            model,
            arguments,
            train_dataset=rows,
            eval_dataset=rows,
            optimizers=(optimizer, None),
            callbacks=[TrainerCallback()],
        )
        trainer.given = optimizer  # before Accelerate wraps it
        return trainer

    yield make
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


def scores(trainer):
    return [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]


def test_hugging_face_evaluates_the_averaged_parameters_and_ends_with_them(trainer_of):
    trainer = trainer_of()
    trained = []
    trainer.given.register_step_post_hook(lambda *_: trained.append(parameters_of(trainer.model)))
    trainer.train()
    assert scores(trainer)[-1] == pytest.approx(loss_of(trainer.model.network), rel=1e-5)
    with trainer.given.averaged():
        averaged = parameters_of(trainer.model)
    assert torch.equal(parameters_of(trainer.model), averaged)
    assert not torch.equal(averaged, trained[-1])


def test_hugging_face_keeps_and_saves_the_best_averaged_parameters(trainer_of, tmp_path):
    """The last epoch is spoiled, so the last evaluation is not the best one."""

    def spoiled(model):
        optimizer = Samuel(model)
        rounds = []

        def spoil(*_):
            rounds.append(None)
            if len(rounds) > (EPOCHS - 1) * BATCHES:
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.add_(torch.randn_like(parameter))

        optimizer.register_step_post_hook(spoil)
        return optimizer

    best = {"save_strategy": "epoch", "load_best_model_at_end": True, "metric_for_best_model": "eval_loss"}
    trainer = trainer_of(optimizer_of=spoiled, **best)
    trainer.train()
    assert min(scores(trainer)) < 0.9 * scores(trainer)[-1]
    assert loss_of(trainer.model.network) == pytest.approx(min(scores(trainer)), rel=1e-5)
    trainer.save_model(str(tmp_path / "final"))
    saved = Classifier()
    from safetensors.torch import load_model

    load_model(saved, str(tmp_path / "final" / "model.safetensors"))
    assert torch.equal(parameters_of(saved), parameters_of(trainer.model))


def test_hugging_face_resumes_to_the_bit(trainer_of, tmp_path):
    unbroken = trainer_of("unbroken", save_strategy="epoch")
    unbroken.train()
    resumed = trainer_of("resumed")
    resumed.train(resume_from_checkpoint=str(tmp_path / "unbroken" / f"checkpoint-{2 * BATCHES}"))
    assert torch.equal(parameters_of(resumed.model), parameters_of(unbroken.model))
    assert scores(resumed) == scores(unbroken)


def test_hugging_face_logs_the_learning_rate_and_not_its_multiplier(trainer_of):
    trainer = trainer_of(logging_steps=BATCHES)
    trainer.train()
    logged = [entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry]
    assert logged[-1] == pytest.approx(float(trainer.given.param_groups[0]["effective_lr"]))
    assert 0 < logged[-1] < 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr_scheduler_type": "linear"}, "rates fall twice: with Samuel.steps=32. they fall"),
        ({"max_grad_norm": 1.0}, "max_grad_norm=1 clips gradients before the shift detector; use .* Samuel.clip=1."),
    ],
)
def test_hugging_face_is_warned_of_arguments_that_work_against_the_optimizer(trainer_of, options, words):
    trainer = trainer_of(optimizer_of=lambda model: Samuel(model, steps=EPOCHS * BATCHES), **options)
    with pytest.warns(UserWarning, match=words):
        trainer.train()


def test_hugging_face_with_another_optimizer_is_refused(trainer_of):
    trainer = trainer_of(optimizer_of=lambda model: torch.optim.AdamW(model.parameters()))
    with pytest.raises(ValueError, match="TrainerCallback is for samuel.torch.Samuel, got .*AdamW"):
        trainer.train()


# Lightning


@pytest.fixture
def fit(tmp_path):
    """Fit a module in some epochs with the callback; returns it and the trainer."""
    lightning = pytest.importorskip("lightning.pytorch")
    from samuel.torch.hooks.lightning import LightningCallback

    class Module(lightning.LightningModule):
        def __init__(self, optimizer_of=Samuel):
            super().__init__()
            self.network, self.optimizer_of, self.scores = network(), optimizer_of, []

        def training_step(self, batch, _):
            return torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])

        def validation_step(self, batch, _):
            loss = torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])
            self.log("score", loss)

        def on_validation_epoch_end(self):
            self.scores.append(loss_of(self.network))

        def configure_optimizers(self):
            return self.optimizer_of(self)

    def fitted(folder="run", module=None, ckpt_path=None):
        module = module or Module()
        saved = lightning.callbacks.ModelCheckpoint(
            tmp_path / folder, filename="{epoch}", monitor="score", save_top_k=-1
        )
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=EPOCHS,
            logger=False,
            default_root_dir=tmp_path,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            callbacks=[LightningCallback(), saved],
        )
        trainer.fit(module, batches(), batches(), ckpt_path=ckpt_path, weights_only=None if ckpt_path is None else True)
        return module, trainer

    fitted.module = Module
    return fitted


def test_lightning_validates_the_averaged_parameters_and_ends_with_them(fit):
    module, trainer = fit()
    assert loss_of(module.network) == module.scores[-1]
    with trainer.optimizers[0].averaged():
        averaged = parameters_of(module)
    assert torch.equal(parameters_of(module), averaged)


def test_lightning_saves_what_it_validated_beside_the_trained_parameters(fit, tmp_path):
    module, _ = fit()
    for epoch, score in enumerate(module.scores):
        checkpoint = torch.load(tmp_path / "run" / f"epoch={epoch}.ckpt", weights_only=True)
        saved = fit.module()
        saved.load_state_dict(checkpoint["state_dict"])
        assert loss_of(saved.network) == score
        trained = fit.module()
        trained.load_state_dict(checkpoint["trained_state_dict"])
        assert loss_of(trained.network) != score


def test_lightning_resumes_to_the_bit(fit, tmp_path):
    unbroken, _ = fit("unbroken")
    resumed, _ = fit("resumed", ckpt_path=tmp_path / "unbroken" / "epoch=1.ckpt")
    assert torch.equal(parameters_of(resumed), parameters_of(unbroken))
    assert resumed.scores == unbroken.scores[2:]


def test_lightning_with_another_optimizer_is_refused(fit):
    with pytest.raises(ValueError, match="LightningCallback is for samuel.torch.Samuel, got SGD"):
        fit(module=fit.module(lambda module: torch.optim.SGD(module.parameters(), 0.1)))


def test_an_exception_leaves_the_trained_parameters_in_the_model(fit):
    module = fit.module()
    before = []

    def fail(batch, batch_idx):
        raise RuntimeError("stop here")

    module.validation_step = fail
    module.on_validation_start = lambda: before.append(None)
    module.on_train_epoch_end = lambda: before.append(parameters_of(module))
    module.on_train_batch_end = lambda *_: before.append(parameters_of(module))
    with pytest.raises(RuntimeError, match="stop here"):
        fit(module=module)
    trained = [vector for vector in before if vector is not None]
    assert torch.equal(parameters_of(module), trained[-1])


# Loggers


@pytest.fixture
def trained():
    model = network()
    optimizer = Samuel(model)
    for inputs, classes in batches():
        torch.nn.functional.cross_entropy(model(inputs), classes).backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


def test_tensorboard_gets_rates_shifts_and_roles(trained, tmp_path):
    tensorboard = pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    from samuel.torch.hooks.loggers import TensorBoardLogger

    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        logger = TensorBoardLogger(writer)
        logger.log(trained, 8)
        logger.log(trained, 9)
    (file,) = tmp_path.glob("events*")
    found = []
    content = file.read_bytes()
    while content:  # length, its checksum, the event, its checksum
        size = int.from_bytes(content[:8], "little")
        event = Event.FromString(content[12 : 12 + size])
        found += [(event.step, value) for value in event.summary.value]
        content = content[16 + size :]
    scalars = {(step, value.tag): value.simple_value for step, value in found if not value.tensor.string_val}
    rates = {group["role"]: float(group["effective_lr"]) for group in trained.param_groups}
    for step in (8, 9):
        assert scalars[step, "samuel/learning_rate/matrix"] == pytest.approx(rates["matrix"])
        assert scalars[step, "samuel/learning_rate/vector"] == pytest.approx(rates["vector"])
        assert scalars[step, "samuel/shifts"] == scalars[step, "samuel/skipped"] == 0
    (table,) = [value.tensor.string_val[0].decode() for _, value in found if value.tensor.string_val]
    assert "0.weight" in table
    assert "matrix" in table


def test_weights_and_biases_gets_rates_shifts_and_roles(trained, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    from samuel.torch.hooks.loggers import WandbLogger

    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(mode="offline", dir=tmp_path, project="samuel") as run:
        WandbLogger(run).log(trained, 8)
        assert "0.weight" in run.config["samuel/roles"]
    wandb.teardown()  # waits until everything is written
    (record,) = Path(tmp_path).glob("wandb/offline-run-*/run-*.wandb")
    content = record.read_bytes()
    for name in ("learning_rate/matrix", "learning_rate/vector", "shifts", "skipped"):
        assert f"samuel/{name}".encode() in content
