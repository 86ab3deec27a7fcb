import os
import signal
import subprocess
import sys

from bicycle_runtime.base.environment import environment_for_python
from bicycle_runtime.jobs.home import Home


def test_a_fault_of_a_library_leaves_the_stacks_of_the_threads_in_the_log(tmp_path):
    home = Home(tmp_path)
    folder = home.folder("job")
    folder.path.mkdir(parents=True)
    os.mkfifo(folder.request_path)  # The driver waits for its request.
    words = [sys.executable, "-m", "bicycle_runtime.jobs.running.submission", str(tmp_path), "job"]
    with (
        subprocess.Popen(words, stderr=subprocess.PIPE, env=environment_for_python()) as process,
        folder.request_path.open("wb"),  # Opened when the driver has opened it, too.
    ):
        process.send_signal(signal.SIGSEGV)
        _, log = process.communicate()

    assert process.returncode == -signal.SIGSEGV
    assert b"Fatal Python error: Segmentation fault" in log
    assert b"jobs/running/submission.py" in log
