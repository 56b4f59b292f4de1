"""Bugs in what tells our folders, locks and processes from other people's."""

from __future__ import annotations

from crash.seeding import Mutant

FOREIGN = "tests/identity/test_foreign_folders.py"
ABOVE = f"{FOREIGN}::test_nothing_in_another_users_folder_above_is_read_or_run_by_any_command"
PARTS = f"{FOREIGN}::test_a_part_of_our_state_that_others_can_change_is_refused"
PIPES = f"{FOREIGN}::test_a_pipe_in_place_of_a_file_is_an_error_and_not_waited_for"
CONTAINERS = "tests/identity/test_containers.py"
LOCK = "tests/contract/test_folder_lock.py"
MACHINE = "tests/identity/test_the_machine.py"

MUTANTS = [
    Mutant(
        "a state folder read whoever owns it",
        "check_folder",
        "found.st_uid not in (os.geteuid(), 0)",
        "False",
        (ABOVE,),
    ),
    Mutant(
        "a state folder read whoever can write to it",
        "check_folder",
        "found.st_mode & 0o022",
        "False",
        (PARTS,),
    ),
    Mutant(
        "the names of jobs read before the folder is checked",
        "FolderCatalogue.names",
        "check_folders(self.root)",
        "",
        (ABOVE,),
    ),
    Mutant(
        "the folders in a job's folder not checked before they are read",
        "check_place",
        "check_folders(folder.parent, folder, *(folder / name for name in FOLDERS))",
        "check_folders(folder.parent, folder)",
        (PARTS,),
    ),
    Mutant(
        "a folder trusted because its name begins like a trusted one's",
        "is_trusted",
        "real.is_relative_to(os.path.realpath(path))",
        "str(real).startswith(os.path.realpath(path))",
        (f"{FOREIGN}::test_a_trusted_folder_covers_what_is_in_it_and_no_other",),
    ),
    Mutant(
        "a pipe read as if it were a file",
        "open_file",
        "not stat.S_ISREG(found)",
        "False",
        (PIPES,),
    ),
    Mutant(
        "a pipe waited for",
        "open_file",
        "flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK",
        "flags | os.O_CLOEXEC | os.O_NOFOLLOW",
        (PIPES,),
    ),
    Mutant(
        "status asks the pid, not the flock",
        "live_holder",
        "holder is None or is_locked(file.fileno()) is False",
        "holder is None",
        (CONTAINERS,),
    ),
    Mutant(
        "a runner in another container looked for by its pid here",
        "live_holder",
        "holder.place != 'here' or is_alive(holder.pid, holder.started)",
        "is_alive(holder.pid, holder.started)",
        (CONTAINERS, LOCK),
    ),
    Mutant(
        "a lock that a reader asks for an instant taken for a busy one",
        "Lock.acquire",
        "tries >= TRIES_AT_LEAST and time.monotonic() >= deadline",
        "time.monotonic() >= deadline",
        (f"{LOCK}::test_asking_does_not_keep_a_runner_from_starting",),
    ),
    Mutant(
        "stop signals the pid that the lock names, whoever it is",
        "signal_holder",
        "not has_open(holder.pid, os.lstat(folder / NAME))",
        "False",
        (f"{FOREIGN}::test_stop_signals_no_process_that_does_not_have_the_lock",),
    ),
    Mutant(
        "want of processes put down to the item",
        "Attempts._waits_for_machine",
        "ended.failure is not None and ended.failure.code == SHORTAGE",
        "False",
        (f"{MACHINE}::test_where_fewer_programs_can_run_than_asked_for_the_others_wait",),
    ),
    Mutant(
        "no descriptor kept back for the checkpoint",
        "FolderStore.lock",
        "self._disk.reserve()",
        "",
        (f"{MACHINE}::test_without_descriptors_an_item_of_an_agent_on_the_loop_goes_back",),
    ),
    Mutant(
        "the files of items published in another user's folder",
        "_check_files",
        "check_folder(home, otherwise=...)",
        "",
        (f"{MACHINE}::test_a_folder_for_files_that_another_user_made_is_refused_at_the_start",),
    ),
]
