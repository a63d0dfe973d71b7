"""The actor that is a rank."""

from __future__ import annotations

import os
import socket
from typing import Any, Callable, Mapping, Optional, Sequence

from horovod.ray import _facts, _failing, _interrupts, _rendezvous, _secret, _sending, ray_logger


class BaseHorovodWorker:
    """One rank of a job, as an actor. The rank is the actor's process, so the state that a function leaves stays for
    the next.

    Args:
        world_rank: the rank, until :meth:`update_env_vars` sets another.
        world_size: the number of ranks, likewise.

    Example:
        >>> worker = ray.remote(BaseHorovodWorker).remote(world_rank=1, world_size=2)
        >>> ray.get(worker.env_vars.remote())["HOROVOD_RANK"]
        '1'
        >>> ray.get(worker.execute.remote(lambda executable: 6 * 7))
        42
        >>> ray.kill(worker)
    """

    executable: Any = None

    def __init__(self, world_rank: int = 0, world_size: int = 1) -> None:
        os.environ.pop(_secret.VARIABLE, None)  # of another job, inside which the cluster was started
        self.update_env_vars({"HOROVOD_RANK": world_rank, "HOROVOD_SIZE": world_size})

    def __repr__(self) -> str:
        return f"rank {os.environ.get('HOROVOD_RANK', '?')}"

    def node_id(self) -> str:
        """Say where this actor runs.

        Returns:
            Ray's identifier of the node.
        """
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def hostname(self) -> str:
        """Say where this actor runs.

        Returns:
            The name of the host.
        """
        return socket.gethostname()

    def get_gpu_ids(self) -> list[Any]:
        """Say what this actor may use.

        Returns:
            The GPUs that Ray has given it.
        """
        import ray

        return list(ray.get_gpu_ids())

    def update_env_vars(self, env_vars: Mapping[str, Any]) -> None:
        """Set variables of this process's environment.

        Args:
            env_vars: values by name.
        """
        os.environ.update({name: str(value) for name, value in env_vars.items()})

    def env_vars(self) -> dict[str, str]:
        """Show the environment of this process.

        Returns:
            Its variables, without the job's secret.
        """
        return {name: value for name, value in os.environ.items() if name != _secret.VARIABLE}

    def start_executable(
        self,
        executable_cls: Optional[Callable[..., Any]] = None,
        executable_args: Optional[Sequence[Any]] = None,
        executable_kwargs: Optional[Mapping[str, Any]] = None,
    ) -> None:
        """Make the object that :meth:`execute` passes to functions.

        Args:
            executable_cls: called to make it. None: there is no such object.
            executable_args: its positional arguments.
            executable_kwargs: its keyword arguments.
        """
        if executable_cls is not None:
            with _failing.told():
                self.executable = executable_cls(*(executable_args or ()), **(executable_kwargs or {}))

    def start_executable_of(self, made_of: tuple[Any, Any, Any]) -> None:
        """Do as :meth:`start_executable`, with all its arguments in one tuple.

        Args:
            made_of: the class, its positional arguments and its keyword arguments.
        """
        self.start_executable(*made_of)

    def execute(self, func: Callable[[Any], Any]) -> Any:
        """Call a function in this process.

        Args:
            func: the function. It gets the object from :meth:`start_executable`; None if there is none.

        Returns:
            The function's result.
        """
        with _failing.told():
            return func(self.executable)

    def call(self, func: Callable[[Any], Any]) -> Any:
        """Do as :meth:`execute`, for the driver, which can interrupt this call, and learns what cannot be sent.

        Args:
            func: the function.

        Returns:
            The function's result, in the form in which it is sent to the driver.
        """
        _failing.leave(only_failed=True)
        with _interrupts.heard():
            return _sending.call(lambda: self.execute(func), repr(self))

    def leave_job(self) -> None:
        """Leave the job, so that the next function's ``hvd.init()`` joins anew."""
        _failing.leave()

    def set_queue(self, queue: Any) -> None:
        """Make ``ray_logger.log`` put its arguments into a queue.

        Args:
            queue: one of Ray's queues; None for no queue.
        """
        ray_logger.configure(queue)

    def idle(self) -> None:
        """Return once the calls before this one have ended."""

    def facts(self) -> _facts.Facts:
        """Say where this actor runs, and its versions.

        Returns:
            The facts that the driver compares, and by which it places ranks.
        """
        return _facts.of_this_process()._replace(hears=_interrupts.prepare())

    def secret_key(self) -> str:
        """Return the job's secret, for another process of the job. It is made here if this process has none.

        Returns:
            The secret.
        """
        return _secret.own()

    def adopt_secret(self, keeper: Any) -> None:
        """Ask another actor for the job's secret.

        Args:
            keeper: the actor.
        """
        _secret.adopt(keeper)

    def establish_rendezvous(self, size: int, nics: Optional[Sequence[str]] = None) -> dict[str, str]:
        """Serve the rendezvous of the job here.

        Args:
            size: the number of ranks.
            nics: names of the network interfaces that the ranks may use; all by default.

        Returns:
            The variables that the ranks need.
        """
        return _rendezvous.establish(size, nics, _secret.own())
