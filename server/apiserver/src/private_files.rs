//! Files and directories that only their owner can read: 0600 and 0700, whatever the umask.
//!
//! The program sets its umask before it has threads ([`set_umask`]), which is what RocksDB's files follow: it has no option
//! for their mode. What is there already, from a version or a copy that left wider modes, is narrowed when a data
//! directory is opened ([`narrow`]). A program that embeds the server keeps its own umask; then the mode of the directories
//! above protects RocksDB's files.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The bits of a mode that let in others than the owner.
const OTHERS: u32 = 0o077;
/// Narrowed paths that are named in the log one by one.
const MOST_NAMED: usize = 200;
/// Directories of a data directory that may be links, to another volume.
const PARTS: [&str; 2] = ["pki", "store"];

/// Makes everything that the process creates from now on private to its owner. To be called before there are threads.
pub fn set_umask() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(OTHERS));
}

/// Makes a directory, and those above it that are missing, with mode 0700.
///
/// # Errors
/// What the file system answers.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a file with mode 0600 that must not be there yet.
///
/// # Errors
/// What the file system answers.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Takes from others what they may do with a data directory and all that is in it. Directories come before what they hold, and
/// links are not followed but those for the parts of a data directory (`PARTS`), so that nobody else can put another file in the place of one that is narrowed. A path that belongs to
/// somebody else stays as it is, with a warning: volumes of some systems have a foreign owner at their root.
///
/// # Errors
/// When the directory cannot be read.
pub fn narrow(root: &Path) -> io::Result<()> {
    let mut narrowed = 0;
    let mut rest = vec![root.to_owned()];
    for part in PARTS {
        let part = root.join(part);
        if fs::symlink_metadata(&part).is_ok_and(|found| found.is_symlink()) {
            // One that leads nowhere is for others to complain about.
            rest.extend(part.canonicalize());
        }
    }
    while let Some(path) = rest.pop() {
        let metadata = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata,
            // RocksDB of a running server removes files while somebody looks.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if metadata.is_symlink() {
            continue;
        }
        let mode = metadata.permissions().mode();
        if mode & OTHERS != 0 {
            narrowed += 1;
            match fs::set_permissions(&path, Permissions::from_mode(mode & !OTHERS)) {
                Ok(()) if narrowed <= MOST_NAMED => {
                    let mode = format!("{:o}", mode & 0o7777);
                    tracing::warn!(path = %path.display(), mode, "others could read a path of the data directory; its mode was narrowed");
                }
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::warn!(
                    %error,
                    path = %path.display(),
                    "others can read a path of the data directory and its mode cannot be narrowed; restrict it to the server's user"
                ),
            }
        }
        if metadata.is_dir() {
            match fs::read_dir(&path) {
                Ok(entries) => {
                    for entry in entries {
                        rest.push(entry?.path());
                    }
                }
                // Such as lost+found.
                Err(error) if path != root && error.kind() == io::ErrorKind::PermissionDenied => {}
                Err(error) => return Err(error),
            }
        }
    }
    if narrowed > MOST_NAMED {
        let paths = narrowed - MOST_NAMED;
        tracing::warn!(paths, "modes of further paths of the data directory were narrowed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn everything_below_is_narrowed_and_nothing_beside() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("data")).unwrap();
        fs::create_dir(path("data/store")).unwrap();
        let rows = [
            ("data", 0o2755, 0o2700),
            ("data/store", 0o777, 0o700),
            ("data/a", 0o644, 0o600),
            ("data/store/b", 0o400, 0o400),
        ];
        fs::write(path("data/a"), "").unwrap();
        fs::write(path("data/store/b"), "").unwrap();
        fs::write(path("outside"), "").unwrap();
        fs::create_dir(path("volume")).unwrap();
        fs::write(path("volume/ca.key"), "").unwrap();
        fs::set_permissions(path("volume/ca.key"), Permissions::from_mode(0o644)).unwrap();
        symlink(path("volume"), path("data/pki")).unwrap();
        fs::set_permissions(path("outside"), Permissions::from_mode(0o644)).unwrap();
        symlink(path("outside"), path("data/link")).unwrap();
        symlink(path("nowhere"), path("data/broken")).unwrap();
        for (name, before, _) in rows {
            fs::set_permissions(path(name), Permissions::from_mode(before)).unwrap();
        }
        narrow(&path("data")).unwrap();
        for (name, _, after) in rows {
            assert_eq!(mode(&path(name)), after, "{name}");
        }
        assert_eq!(mode(&path("outside")), 0o644, "a link is not followed");
        assert_eq!(mode(&path("volume/ca.key")), 0o600, "but for the parts of the directory");
        assert!(narrow(&path("missing")).is_ok());
    }

    #[test]
    fn what_is_made_is_private() {
        let dir = tempfile::tempdir().unwrap();
        create_dir_all(&dir.path().join("a/b")).unwrap();
        create_dir_all(&dir.path().join("a/b")).unwrap();
        drop(create_new(&dir.path().join("a/b/c")).unwrap());
        let modes: Vec<u32> = ["a", "a/b", "a/b/c"].iter().map(|name| mode(&dir.path().join(name))).collect();
        assert_eq!(modes, [0o700, 0o700, 0o600]);
        assert!(create_new(&dir.path().join("a/b/c")).is_err());
    }
}
