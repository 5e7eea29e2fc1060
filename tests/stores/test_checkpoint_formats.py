"""Which checkpoint of a run is read, whatever its format, and from how many files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tracker_health.evidence import Attribution, Part, Request
from tracker_health.readers.checkpoint_formats import FORMATS
from tracker_health.roles import RolePlan
from tracker_health.run_files.reading import read_files, relevant_files
from tracker_health.stores.folder.directory import DirectoryRun

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")

pytestmark = pytest.mark.filterwarnings("ignore")
ZERO = Path(__file__).parents[1] / "data" / "deepspeed" / "zero2" / "global_step3"


def read(folder, checkpoint=None):
    request = Request(roles=RolePlan(), parts=frozenset(Part), checkpoint=checkpoint)
    return read_files(DirectoryRun(folder), request)


def state_of(steps, *names):
    def moments():
        return {
            "step": torch.tensor(float(steps)),
            "exp_avg": torch.full((4,), 0.5),
            "exp_avg_sq": torch.full((4,), float(steps)),
        }

    return {"state": {name: moments() for name in names}, "param_groups": [{"lr": 0.1, "params": list(names)}]}


def save(folder, state):
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, sync_files=False))


def save_fsdp(folder, steps):
    """A folder as Accelerate and the Hugging Face trainer leave it with FSDP: weights and optimizer each in a folder."""
    save(folder / "optimizer_0", {"optimizer": state_of(steps, "a.weight", "b.weight")})
    save(folder / "pytorch_model_fsdp_0", {"model": {"a.weight": torch.ones(4)}})
    torch.save({"last_epoch": 1}, folder / "scheduler.pt")
    (folder / "trainer_state.json").write_text(f'{{"log_history": [], "global_step": {steps}, "max_steps": 100}}')


def test_the_newest_of_several_fsdp_checkpoints_is_read_with_the_step_beside_it(tmp_path):
    for steps in (2, 10):
        save_fsdp(tmp_path / f"checkpoint-{steps}", steps)
    found = read(tmp_path)
    assert found.problems == []
    assert found.optimizer.source == "checkpoint-10/optimizer_0/.metadata"
    assert (found.optimizer.global_step, found.optimizer.attribution) == (10, Attribution.NAMED)
    assert [one.second_moment.mean for one in found.optimizer.tensors] == [10.0, 10.0]


@pytest.mark.parametrize(
    "chosen", ["checkpoint-2", "checkpoint-2/optimizer_0", "checkpoint-2/optimizer_0/__0_0.distcp"]
)
def test_a_checkpoint_is_chosen_by_its_folder_or_any_of_its_files(tmp_path, chosen):
    for steps in (2, 10):
        save_fsdp(tmp_path / f"checkpoint-{steps}", steps)
    found = read(tmp_path, chosen)
    assert (found.problems, found.optimizer.source) == ([], "checkpoint-2/optimizer_0/.metadata")


def test_one_folder_with_everything_gives_weights_too(tmp_path):
    save(tmp_path / "step7", {"model": {"a.weight": torch.ones(4)}, "optim": state_of(7, "a.weight"), "step": 7})
    found = read(tmp_path)
    assert [(one.name, one.shape) for one in found.weights.tensors] == [("a.weight", (4,))]
    assert found.optimizer.global_step == 7


def test_a_damaged_part_takes_the_state_away_and_is_named(tmp_path):
    save_fsdp(tmp_path / "checkpoint-2", 2)
    part = tmp_path / "checkpoint-2" / "optimizer_0" / "__0_0.distcp"
    part.write_bytes(part.read_bytes()[:100])
    (problem,) = read(tmp_path).problems
    assert problem.source == "checkpoint-2/optimizer_0/.metadata"
    assert "__0_0.distcp" in problem.message
    assert Part.SECOND_MOMENTS in problem.roles


def test_every_file_of_a_checkpoint_counts_in_the_fingerprint(tmp_path):
    save_fsdp(tmp_path / "checkpoint-2", 2)
    shutil.copytree(ZERO, tmp_path / "zero")
    names = {Path(file.path).name for file in relevant_files(DirectoryRun(tmp_path))}
    assert {".metadata", "__0_0.distcp", "mp_rank_00_model_states.pt"} <= names
    assert "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt" in names


def test_a_file_called_metadata_of_another_program_is_nothing(tmp_path):
    (tmp_path / ".metadata").write_text("something else")
    found = read(tmp_path)
    assert (found.problems, found.optimizer) == ([], None)
    assert not any("checkpoint" in reason for reason in found.missing.values())


def test_a_deepspeed_checkpoint_in_the_trainers_folder(tmp_path):
    shutil.copytree(ZERO, tmp_path / "checkpoint-3" / "global_step3")
    (tmp_path / "checkpoint-3" / "latest").write_text("global_step3")
    found = read(tmp_path)
    assert found.problems == []
    assert (len(found.optimizer.tensors), found.optimizer.global_step) == (7, 3)
    assert len(found.weights.tensors) == 7
    one_rank = "checkpoint-3/global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
    assert len(read(tmp_path, one_rank).optimizer.tensors) == 7


def test_a_deepspeed_checkpoint_without_optimizer_states_is_told(tmp_path):
    (tmp_path / "global_step3").mkdir()
    torch.save({"module": {}}, tmp_path / "global_step3" / "mp_rank_00_model_states.pt")
    found = read(tmp_path)
    assert "without the ranks' optimizer states" in found.missing[Part.OPTIMIZER_STATE]


def test_deepspeed_without_zero_keeps_the_state_in_the_model_file(tmp_path):
    torch.save({"optimizer": state_of(4, 0), "global_steps": 4}, tmp_path / "mp_rank_00_model_states.pt")
    found = read(tmp_path)
    assert (len(found.optimizer.tensors), found.optimizer.global_step) == (1, 4)
    assert len(read(tmp_path, "mp_rank_00_model_states.pt").optimizer.tensors) == 1


def test_accelerate_saves_several_optimizers_in_files_of_their_own(tmp_path):
    torch.save(state_of(3, 0, 1), tmp_path / "optimizer.bin")
    torch.save(state_of(5, 0), tmp_path / "optimizer_1.bin")
    torch.save({"last_epoch": 1}, tmp_path / "scheduler_1.bin")
    found = read(tmp_path)
    assert found.problems == []
    assert [(one.label, one.step, one.group) for one in found.optimizer.tensors] == [
        ("optimizer/#0", 3.0, 0),
        ("optimizer/#1", 3.0, 0),
        ("optimizer_1/#0", 5.0, 1),
    ]
    assert [one.step for one in read(tmp_path, "optimizer_1.bin").optimizer.tensors] == [5.0]


def test_what_accelerate_saves_is_read(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model, other = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
    optimizers = [torch.optim.AdamW(model.parameters()), torch.optim.Adamax(other.parameters())]
    model, other, *optimizers = accelerator.prepare(model, other, *optimizers)
    accelerator.backward(other(model(torch.ones(5, 3))).square().mean())
    for optimizer in optimizers:
        optimizer.step()
    accelerator.save_state(str(tmp_path / "state"))
    found = read(tmp_path)
    assert found.problems == []
    assert [(one.optimizer, one.kind) for one in found.optimizer.tensors] == [
        *[("optimizer", "adam")] * 2,
        *[("optimizer_1", "adamax")] * 2,
    ]


def test_what_lightning_saves_is_read(tmp_path):
    lightning = pytest.importorskip("pytorch_lightning")

    class Two(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.one, self.two = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
            self.automatic_optimization = False

        def training_step(self, batch, index):
            optimizers = self.optimizers()
            for optimizer in optimizers:
                optimizer.zero_grad()
            self.manual_backward(self.two(self.one(batch[0])).square().mean())
            for optimizer in optimizers:
                optimizer.step()

        def configure_optimizers(self):
            return [torch.optim.AdamW(self.one.parameters()), torch.optim.RMSprop(self.two.parameters())]

        def train_dataloader(self):
            return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 3)), batch_size=4)

    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    lightning.Trainer(max_epochs=2, accelerator="cpu", default_root_dir=tmp_path, **quiet).fit(Two())
    found = read(tmp_path)
    assert found.problems == []
    assert [(one.optimizer, one.kind) for one in found.optimizer.tensors] == [
        *[("optimizer_states.0", "adam")] * 2,
        *[("optimizer_states.1", "rmsprop")] * 2,
    ]
    assert found.optimizer.global_step == 8


def test_the_formats_have_names_of_their_own():
    assert len({one.name for one in FORMATS}) == len(FORMATS)
