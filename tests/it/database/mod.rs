//! Tests of the data directory: exclusive access, and the errors of a damaged or unwritable one.

mod full_disk;
mod locked;
mod migration;
mod records;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use pkgtool_serve::database::{DataLock, DatabaseError, DatabaseUrl, Timestamp};
use pkgtool_serve::task::Stores;

use crate::support::environment::say;
use crate::task::{WIDE, accounts, block_on, directory, id, new, open};
use full_disk::FullDisk;

/// Opens the database of a data directory.
fn open_in(directory: &Path) -> Result<Stores, DatabaseError> {
    block_on(Stores::open(&DatabaseUrl::in_directory(directory)))
}

#[test]
fn one_server_at_a_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let lock = DataLock::take(directory.path()).expect("it is free");
    let second = DataLock::take(directory.path());
    assert!(matches!(second, Err(DatabaseError::InUse { .. })));
    drop(lock);
    DataLock::take(directory.path()).expect("it is free again");
}

#[test]
fn a_later_releases_database_is_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    open_in(directory.path()).expect("it is new");
    let connection = rusqlite::Connection::open(directory.path().join("pkgtool.db"));
    let connection = connection.expect("it opens");
    connection
        .pragma_update(None, "user_version", 99)
        .expect("it can be set");
    drop(connection);
    let error = open_in(directory.path()).expect_err("it is too new");
    assert!(matches!(error, DatabaseError::TooNew { found: 99, .. }));
    assert!(error.to_string().contains("later release"), "{error}");
}

#[test]
fn only_its_owner_may_read_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let inner = directory.path().join("data");
    open_in(&inner).expect("it is new");
    let mode = fs::metadata(&inner)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

fn mode(path: &std::path::Path) -> u32 {
    let found = fs::metadata(path).expect("it is there");
    found.permissions().mode() & 0o777
}

fn set_mode(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

#[test]
fn a_directory_that_others_can_read_is_made_private() {
    let directory = tempfile::tempdir().expect("a directory");
    let inner = directory.path().join("data");
    open_in(&inner).expect("it is new");
    let blobs = inner.join("blobs").join("body");
    fs::create_dir_all(&blobs).expect("it can be made");
    let blob = blobs.join("one");
    fs::write(&blob, "secret").expect("it can be made");
    let database = inner.join("pkgtool.db");
    for (path, wide) in [
        (&blob, 0o644),
        (&blobs, 0o755),
        (&database, 0o664),
        (&inner, 0o755),
    ] {
        set_mode(path, wide);
    }
    let lock = DataLock::take(&inner).expect("it is ours");
    for (path, narrow) in [
        (&blob, 0o600),
        (&blobs, 0o700),
        (&database, 0o600),
        (&inner, 0o700),
    ] {
        assert_eq!(mode(path), narrow, "{}", path.display());
    }
    assert_eq!(mode(&inner.join("lock")), 0o600);
    drop(lock);
    // Files of an older release, in a directory that was private.
    set_mode(&database, 0o644);
    open_in(&inner).expect("it is ours");
    assert_eq!(mode(&database), 0o600);
}

#[test]
fn a_directory_of_others_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let shared = directory.path().join("shared");
    fs::create_dir(&shared).expect("it can be made");
    fs::write(shared.join("notes.txt"), "").expect("it can be made");
    set_mode(&shared, 0o755);
    let error = DataLock::take(&shared).expect_err("it has files of others");
    assert!(
        error
            .to_string()
            .contains("contains files of other programs"),
        "{error}"
    );
    assert_eq!(mode(&shared), 0o755);
    let theirs = directory.path().join("theirs");
    open_in(&theirs).expect("it is new");
    if std::os::unix::fs::chown(&theirs, Some(12_345), None).is_err() {
        say("SKIPPED a_directory_of_others_is_refused, in part: only root gives files away");
        return;
    }
    let error = DataLock::take(&theirs).expect_err("it is not ours");
    assert!(
        error.to_string().contains("belongs to user 12345"),
        "{error}"
    );
    assert!(open_in(&theirs).is_err());
}

#[test]
fn a_directory_that_cannot_be_written_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, "").expect("it can be made");
    let error = open_in(&file.join("data")).expect_err("a file is not a directory");
    assert!(matches!(error, DatabaseError::ReadOnly { .. }), "{error}");
    let locked = directory.path().join("locked");
    open_in(&locked).expect("it is new");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).expect("it is ours");
    if fs::write(locked.join("probe"), "").is_ok() {
        say("SKIPPED a_directory_that_cannot_be_written_is_told, in part: root may write anywhere");
        return;
    }
    let error = DataLock::take(&locked).expect_err("it cannot be written");
    assert!(matches!(error, DatabaseError::ReadOnly { .. }), "{error}");
}

#[test]
fn a_file_that_is_no_database_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("pkgtool.db"), vec![0x55; 9000]).expect("it can be made");
    let error = open_in(directory.path()).expect_err("it is not a database");
    assert!(matches!(error, DatabaseError::Corrupt { .. }), "{error}");
}

#[test]
fn a_damaged_page_harms_only_what_is_in_it() {
    let (directory, stores) = directory();
    accounts_without_limits(&stores);
    let caps = pkgtool_serve::task::Caps {
        waiting: 10_000,
        ..WIDE
    };
    let store = open(&stores, caps);
    block_on(async {
        for number in 1..=2000 {
            let made = store.enqueue(new(number), Timestamp(1)).await;
            made.expect("it is accepted");
        }
    });
    drop(store);
    let file = directory.path().join("pkgtool.db");
    let mut bytes = fs::read(&file).expect("it can be read");
    assert_eq!(
        fs::metadata(directory.path().join("pkgtool.db-wal")).map_or(0, |it| it.len()),
        0
    );
    // A leaf of the table, which is a page with rows, in the middle.
    let page = bytes
        .chunks(4096)
        .position(|page| page[0] == 10 && page.windows(4).any(|four| four == b"1000"))
        .expect("a page with the task");
    bytes[page * 4096..page * 4096 + 64].fill(0xa5);
    fs::write(&file, bytes).expect("it can be changed");
    let store = open(&stores, caps);
    let (mut read, mut damaged) = (0, 0);
    block_on(async {
        for number in 1..=2000 {
            match store.get(id(number)).await {
                Ok(Some(task)) => {
                    assert_eq!(task.id, id(number));
                    read += 1;
                }
                Ok(None) => panic!("{number} is taken for one that never was"),
                Err(DatabaseError::Corrupt { .. }) => damaged += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(damaged > 0 && damaged < 200, "{damaged}");
        let unwell = store.health().await.expect_err("damage was met");
        assert!(matches!(unwell, DatabaseError::Corrupt { .. }), "{unwell}");
        let checked = store.check().await.expect_err("it is damaged");
        assert!(
            matches!(checked, DatabaseError::Corrupt { .. }),
            "{checked}"
        );
        assert_eq!(read + damaged, 2000);
        // New tasks still work, because they are appended to other pages.
        let made = store.enqueue(new(3000), Timestamp(1)).await;
        assert_eq!(made.expect("it is accepted"), id(3000));
        let canceled = store.cancel(id(3000), Timestamp(2)).await;
        assert!(canceled.expect("it works").is_some());
    });
}

#[test]
fn a_full_disk_is_told_and_what_was_accepted_stays() {
    let (directory, stores) = directory();
    accounts_without_limits(&stores);
    let caps = pkgtool_serve::task::Caps {
        waiting: 1_000_000,
        ..WIDE
    };
    let store = open(&stores, caps);
    let disk = FullDisk::of(directory.path());
    block_on(async {
        store
            .enqueue(new(1), Timestamp(1))
            .await
            .expect("it is accepted");
        let mut accepted = 1;
        // The disk fills up three times and is cleared each time.
        for room in [200_000, 300_000, 100_000] {
            disk.leave(room);
            let error = loop {
                match store.enqueue(new(accepted + 1), Timestamp(1)).await {
                    Ok(_) => accepted += 1,
                    Err(error) => break error,
                }
                assert!(accepted < 10_000, "it is never full");
            };
            assert!(error.to_string().contains("disk is full"), "{error}");
            let unwell = store.health().await.expect_err("nothing can be kept");
            assert!(matches!(unwell, DatabaseError::Full { .. }), "{unwell}");
            for number in 1..=accepted {
                let task = store.get(id(number)).await.expect("it works");
                assert!(task.is_some(), "{number} of {accepted} is lost");
            }
            let lost = store.get(id(accepted + 1)).await.expect("it works");
            assert_eq!(lost, None, "it was refused");
            assert_eq!(store.load().await.expect("it works"), (accepted, 0));
            disk.make_room();
            store.health().await.expect("there is room");
            let made = store.enqueue(new(accepted + 1), Timestamp(1)).await;
            made.expect("it is accepted");
            accepted += 1;
            assert_eq!(store.load().await.expect("it works"), (accepted, 0));
        }
        assert!(accepted > 3, "something was accepted between");
    });
}

fn accounts_without_limits(stores: &Stores) {
    block_on(async {
        let set = accounts(stores)
            .await
            .set("a1", Some(1_000_000), None)
            .await;
        set.expect("it is there");
    });
}
