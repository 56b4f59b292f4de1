"""Bugs in what tells one file or descriptor from another."""

from __future__ import annotations

from crash.seeding import Mutant

HELD = "tests/contract/test_folder_held.py"
BACKUPS = "tests/crash/test_backups.py"
ITEM_FILES = "tests/unit/outputs/test_files.py"
CLAIMS = "tests/unit/outputs/test_claim.py"

FORMS = "tests/crash/test_forms.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "files of a folder written before the list names them",
        "FolderOutput._put",
        "self._written.replace(chain(self._written, new()))",
        "list(new())",
        (FORMS,),
    ),
    Mutant(
        "the list forgets the old files before they are replaced",
        "FolderOutput._put",
        "self._written.replace(chain(self._written, new()))",
        "self._written.replace(list(new()))",
        (FORMS,),
    ),
    Mutant(
        "temporaries of others swept from the folder",
        "FolderOutput.sweep",
        "name[1:-17] in listed",
        "True",
        (FORMS,),
    ),
    Mutant(
        "the list shortened before the folder is synced",
        "FolderOutput._put",
        "sync_folder(disk, self.path)",
        "",
        (FORMS,),
    ),
    Mutant(
        "files published as hard links",
        "ItemFiles._copy",
        """
reading = _open_source(source)
""",
        """
self._disk.link(str(source), str(target))
with open(target, 'rb') as linked:
    text = linked.read()
    os.fsync(linked.fileno())
return PublishedFile(str(target), len(text), hashlib.sha256(text).hexdigest(), os.stat(target).st_mtime_ns)
""",
        (f"{ITEM_FILES}::test_whoever_still_has_a_file_open_does_not_change_what_was_published",),
    ),
    Mutant(
        "files hashed where they come from",
        "ItemFiles._copy",
        "os.pread(writing.fd, PIECE_BYTES, size)",
        "os.pread(reading.fd, PIECE_BYTES, size)",
        (f"{ITEM_FILES}::test_the_hash_is_of_what_was_published_even_if_the_file_changes_meanwhile",),
    ),
    Mutant(
        "files carried over without a look at what they hold",
        "ItemFiles._publish",
        "(listed[path].size, listed[path].sha256) != (was.size, was.sha256)",
        "False",
        (f"{ITEM_FILES}::test_a_published_file_that_differs_or_is_missing_is_named",),
    ),
    Mutant(
        "a backup made while the launch runs appended to",
        "JournalFile.append",
        "held is not None and held.stat().st_nlink > 1",
        "False",
        (BACKUPS,),
    ),
    Mutant(
        "a journal with a second name opened as it is",
        "_open_journal",
        "found.st_nlink == 1",
        "True",
        (BACKUPS,),
    ),
    Mutant(
        "a copied journal renamed before its content is on disk",
        "_open_journal",
        "replace_file(disk, path, pieces)",
        """
copy = f'{path}.copy'
target = disk.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
for piece in pieces:
    disk.write(target, piece)
disk.close(target)
disk.replace(copy, str(path))
""",
        (BACKUPS,),
    ),
    Mutant(
        "a commit without a look at the lock",
        "FolderStore.lock",
        "self._lock = lease.held",
        "self._lock = Held(os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC), str(self.folder))",
        (f"{HELD}::test_without_its_lock_a_runner_writes_nothing_more",),
    ),
    Mutant(
        "no second look before the rename",
        "StateFile.replace",
        "(moved := first_moved(new, lock, folder, ...)) is not None",
        "False",
        (f"{HELD}::test_without_its_lock_a_runner_writes_nothing_more",),
    ),
    Mutant(
        "a file that was written to where it lies taken for ours",
        "first_moved",
        "held.stamp is not None and (found.st_mtime_ns, found.st_size) != held.stamp",
        "False",
        ("tests/contract/test_state_file.py::test_one_that_another_program_touched_is_neither_replaced_nor_unlinked",),
    ),
    Mutant(
        "a copy with the same time and size taken for ours",
        "first_moved",
        "(ours.st_dev, ours.st_ino) != held.file or (found.st_dev, found.st_ino) != held.file",
        "(ours.st_dev, ours.st_ino) != held.file",
        (f"{HELD}::test_a_copy_with_the_same_time_and_size_is_another_file",),
    ),
    Mutant(
        "a descriptor known by its number when it is written to",
        "Held.stat",
        "(found.st_dev, found.st_ino) != self.file",
        "False",
        (
            f"{HELD}::test_a_journal_that_an_agent_closed_while_the_disk_was_waited_for_is_not_counted_on",
            f"{HELD}::test_a_descriptor_that_an_agent_has_taken_over_is_neither_written_to_nor_closed",
        ),
    ),
    Mutant(
        "a descriptor known by its number before a commit",
        "first_moved",
        "(ours.st_dev, ours.st_ino) != held.file or (found.st_dev, found.st_ino) != held.file",
        "(found.st_dev, found.st_ino) != held.file",
        (f"{HELD}::test_a_descriptor_that_an_agent_has_taken_over_is_neither_written_to_nor_closed",),
    ),
    Mutant(
        "a number closed that is no longer ours",
        "Held.close",
        """
try:
    self.stat()
except OSError:
    return
""",
        "",
        (f"{HELD}::test_a_descriptor_that_an_agent_has_taken_over_is_neither_written_to_nor_closed",),
    ),
    Mutant(
        "the log of launches written by number",
        "History.add",
        "(found.st_dev, found.st_ino) != held.file",
        "False",
        (f"{HELD}::test_the_log_of_launches_goes_on_in_its_own_file",),
    ),
    Mutant(
        "the claim of an unfinished run taken over",
        "_is_unfinished",
        "found is None or found.run_id != note.run_id",
        "True",
        (CLAIMS,),
    ),
    Mutant(
        "an output that another job wrote replaced",
        "Claim.check",
        "_identity(self._output) != self._found",
        "False",
        (CLAIMS,),
    ),
]
