"""Hugging Face's Trainer over gorovod: a tiny language model, made here, learns to repeat what it has seen."""

import tempfile

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

import horovod.torch.distributed  # noqa: F401 - registers the backend

WORDS, LENGTH, SAMPLES = 16, 12, 64


class Repetitions(torch.utils.data.Dataset):
    """Sequences of which the second half is the first once more."""

    def __init__(self):
        halves = torch.randint(WORDS, (SAMPLES, LENGTH // 2), generator=torch.Generator().manual_seed(1))
        self.sequences = torch.cat([halves, halves], dim=1)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, i):
        return {"input_ids": self.sequences[i], "labels": self.sequences[i]}


def main(folder):
    dist.init_process_group("gorovod")
    set_seed(7)
    config = GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    arguments = TrainingArguments(
        output_dir=folder, use_cpu=True, num_train_epochs=4, per_device_train_batch_size=8, learning_rate=1e-2,
        eval_strategy="epoch", save_strategy="no", logging_steps=1, report_to=[], disable_tqdm=True,
    )  # fmt: skip
    samples = Repetitions()
    trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=samples, eval_dataset=samples)
    trainer.train()
    assert dist.get_backend() == "gorovod", dist.get_backend()
    assert arguments.world_size == 2
    assert trainer.state.global_step == 4 * SAMPLES // (8 * 2), trainer.state.global_step
    told = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert told[-1] < told[0], told

    weights = torch.cat([p.detach().flatten() for p in trainer.accelerator.unwrap_model(trainer.model).parameters()])
    each = [torch.empty_like(weights) for _ in range(2)]
    dist.all_gather(each, weights)
    torch.testing.assert_close(each[0], each[1], rtol=0, atol=0)
    if trainer.is_world_process_zero():
        steps = trainer.state.global_step
        print(f"passed: {steps} steps, evaluation loss {told[0]:.3f} to {told[-1]:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
