"""The programs of `make ecosystem`: what other projects build on Horovod or torch.distributed, and how each is run."""

from __future__ import annotations

from dataclasses import dataclass, field

PYTEST = ("{python}", "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--junitxml={junit}")
HERE = "{root}/test/ecosystem"


@dataclass(frozen=True)
class Program:
    """A row of the table.

    ``command`` may name {python} (of the environment), {horovodrun}, {root} (of the checkout), {source} (of the
    unpacked sdist) and {junit} (where pytest writes its report). ``known`` says why tests fail that gorovod cannot
    mend: the first whose expression is found in a failure's name or text counts. A failure without a reason fails the
    run.
    """

    name: str
    package: str  # a requirement, pinned; the table has its version
    what: str  # what is run, for the table
    command: tuple[str, ...]
    ours: bool = False  # a client program of this repository, since the package ships no test of this
    sdist: bool = False  # its tests are in its sdist, which is fetched, and is the working folder
    environment: str = "torch"  # build/ecosystem/ENVIRONMENT
    variables: dict[str, str] = field(default_factory=dict)
    seconds: int = 600  # more is a failure
    known: dict[str, str] = field(default_factory=dict)  # an expression: the reason


def on_ranks(ranks: int, program: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a client program of ours under horovodrun."""
    return ("{horovodrun}", "-np", str(ranks), "{python}", f"{HERE}/{program}", *arguments)


def torchrun(ranks: int, program: str, *arguments: str) -> tuple[str, ...]:
    """The same under PyTorch's own launcher, which projects expect that know no Horovod."""
    return ("{python}", "-m", "torch.distributed.run", "--nproc_per_node", str(ranks), f"{HERE}/{program}", *arguments)


PROGRAMS = (
    Program(
        "pytorch-ignite",
        "pytorch-ignite==0.5.5",
        "its tests of `ignite.distributed` with the Horovod backend, on 1 to 4 ranks",
        (*PYTEST, "tests/ignite/distributed", "-k", "horovod or hvd"),
        sdist=True,
        seconds=2400,
    ),
    Program(
        "Lightning",
        "pytorch-lightning==2.6.6",
        '`Trainer(strategy=DDPStrategy(process_group_backend="gorovod"))` on 2 ranks of torchrun',
        torchrun(2, "lightning_ddp.py"),
        ours=True,
    ),
    Program(
        "lightning-horovod",
        "lightning-horovod==0.1.0.dev0",
        "`HorovodStrategy` on 2 ranks, with the Lightning that it asks for, 2.0.0rc0; one line gives the trainer an "
        "attribute that the strategy reads and Lightning 2 lacks",
        on_ranks(2, "lightning_horovod_fit.py"),
        ours=True,
        environment="lightning-horovod",
    ),
    Program(
        "TFRA",
        "tensorflow-recommenders-addons==0.8.1",
        "`HvdAllToAllEmbedding` on 2 ranks, with TensorFlow 2.16.2 and Keras 2, compared with a table in one process",
        on_ranks(2, "tfra_alltoall.py"),
        ours=True,
        environment="tfra",
        variables={"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"},
    ),
    Program(
        "torchft",
        "torchft==0.2.0",
        "its tests of collectives over `ProcessGroupBabyGorovod` on 3 ranks, and over `ProcessGroupGorovod` on one",
        (*PYTEST, f"{HERE}/torchft_groups.py", "-k", "not resiliency"),
        seconds=1200,
    ),
    Program(
        "torchft, a rank that leaves",
        "torchft==0.2.0",
        "its tests of that over `ProcessGroupBabyGorovod` on 3 ranks",
        (*PYTEST, f"{HERE}/torchft_groups.py", "-k", "resiliency"),
        seconds=1200,
        known={
            'does not match "Horovod has been shut down': "the test knows the words of Gloo's errors only, and gorovod "
            "tells the survivor before a second has passed that the job has ended",
        },
    ),
    Program(
        "torchft, a replica that is killed",
        "torchft==0.2.0",
        "`ProcessGroupGorovod` in 3 processes: one is killed, two go on, another one joins",
        ("{python}", f"{HERE}/torchft_replicas.py"),
        ours=True,
    ),
    Program(
        "torchft, its Manager",
        "torchft==0.2.0",
        "`Manager`, `DistributedDataParallel`, `Optimizer` over `ProcessGroupGorovod`, with torchft's lighthouse and "
        "2 replicas: one is killed, the other goes on, and a new one gets its state",
        ("{python}", f"{HERE}/torchft_manager.py"),
        ours=True,
        seconds=1800,
    ),
    Program(
        "accelerate",
        "accelerate==1.15.0",
        '`init_process_group("gorovod")` and then `Accelerator`, on 2 ranks of torchrun',
        torchrun(2, "accelerate_ddp.py"),
        ours=True,
    ),
    Program(
        "Hugging Face Trainer",
        "transformers==5.23.0",
        "`Trainer` on a tiny GPT-2 made on the spot, on 2 ranks of torchrun",
        torchrun(2, "transformers_trainer.py"),
        ours=True,
    ),
    Program(
        "PyTorch's parallel modules",
        "torch==2.15.0",
        "`fully_shard`, `parallelize_module`, `ZeroRedundancyOptimizer`, `DTensor` and a "
        "distributed checkpoint over the backend `gorovod` on 2 ranks, compared with one process",
        on_ranks(2, "torch_parallel.py"),
        ours=True,
    ),
    Program(
        "torchrec",
        "torchrec==1.9.2",
        "`DistributedModelParallel` on 2 ranks with tables by columns and as a whole, with PyTorch 2.14.1 and FBGEMM "
        "1.9.0, compared with one process",
        on_ranks(2, "torchrec_tables.py"),
        ours=True,
        environment="torchrec",
    ),
    Program(
        "torchmetrics",
        "torchmetrics==1.9.0",
        "metrics of unequal shares, on 2 ranks, compared with one process",
        on_ranks(2, "torchmetrics_sync.py"),
        ours=True,
    ),
    Program(
        "Optuna",
        "optuna==5.0.0",
        "`TorchDistributedTrial` of optuna-integration 5.0.0, on 2 ranks",
        on_ranks(2, "optuna_trials.py"),
        ours=True,
    ),
    Program(
        "Ray Tune",
        "ray==2.60.0",
        "a `Tuner` whose trials are a `horovod.ray.RayExecutor` of 2 workers each",
        ("{python}", f"{HERE}/ray_tune.py"),
        ours=True,
        environment="ray",
    ),
)
