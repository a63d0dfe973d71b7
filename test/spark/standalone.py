"""A standalone cluster of Spark: a master and workers that are processes of this machine."""

import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pyspark


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Cluster:
    """The processes. Each worker has one core, and looks like a container of YARN, so that it is a host of its own."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.port = free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self.workers = []
        self.master = self._start("master.Master", "--port", str(self.port), "--webui-port", str(free_port()))
        self._await_port()

    def _start(self, kind, *arguments, **variables):
        script = Path(pyspark.__file__).parent / "bin" / "spark-class"
        log = open(self.folder / f"{kind}.{len(self.workers)}", "w")
        return subprocess.Popen(
            [script, f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", *arguments],
            stdout=log,
            stderr=log,
            env={**os.environ, **variables},
        )

    def _await_port(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise AssertionError("the master has not started: " + (self.folder / "master.Master.0").read_text())

    def add_worker(self):
        """Start one, and return its process."""
        work = tempfile.mkdtemp(dir=self.folder)
        arguments = ["--cores", "1", "--memory", "1g", "--work-dir", work, "--webui-port", str(free_port()), self.url]
        # Spark itself takes CONTAINER_ID for a container of YARN, which has folders of its own.
        yarn = {"CONTAINER_ID": f"container_{len(self.workers)}", "LOCAL_DIRS": work}
        self.workers.append(self._start("worker.Worker", *arguments, **yarn))
        return self.workers[-1]

    def close(self):
        for process in [*self.workers, self.master]:
            process.terminate()
        for process in [*self.workers, self.master]:
            process.wait(30)


def ancestors(pid):
    """The processes above one, from its parent on."""
    found = []
    while pid > 1:
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])
        found.append(pid)
    return found
