"""A program with jobs on executors of their own, for tests that end it or look at it from outside.

driver.py interrupt|sleep FOLDER
"""

import os
import sys
import time

from conftest import start_session

import horovod.spark


def sleeps(folder):
    import horovod.torch as hvd

    hvd.init()
    with open(os.path.join(folder, f"rank.{hvd.rank()}"), "w") as file:
        file.write(str(os.getpid()))
    time.sleep(1000)


def main(how, folder):
    session = start_session("local-cluster[2,1,1024]")
    try:
        horovod.spark.run(sleeps, args=(folder,), num_proc=2)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(horovod.spark.run(os.getcwd, num_proc=2) != [], flush=True)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
