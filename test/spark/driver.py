"""A program with jobs on executors of their own, for tests that end it or look at it from outside.

driver.py interrupt|sleep FOLDER
"""

import os
import signal
import sys
import time
from pathlib import Path

from conftest import start_session

import horovod.spark


def sleeps(folder):
    import horovod.torch as hvd

    hvd.init()
    signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), os._exit(1)))  # it takes a while to clean up
    with open(os.path.join(folder, f"rank.{hvd.rank()}"), "w") as file:
        file.write(str(os.getpid()))
    time.sleep(1000)


def main(how, folder):
    session = start_session("local-cluster[2,1,1024]")
    try:
        horovod.spark.run(sleeps, args=(folder,), num_proc=2)
    except KeyboardInterrupt:
        left = [path.name for path in Path(folder).glob("rank.*") if Path("/proc", path.read_text()).exists()]
        print("interrupted", left, flush=True)
    print(horovod.spark.run(os.getcwd, num_proc=2) != [], flush=True)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
