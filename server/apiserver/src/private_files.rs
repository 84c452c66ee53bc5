//! Files and directories that only their owner can read: 0600 and 0700, whatever the umask.
//!
//! The program sets its umask before it starts threads ([`set_umask`]); RocksDB has no option for the mode of
//! its files, so they depend on it. Existing files with wider modes, from an older version or a copy, are
//! narrowed when a data directory is opened ([`narrow`]). A program that embeds the server keeps its own
//! umask; then the mode of the parent directories protects RocksDB's files.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Mode bits of group and others.
const OTHERS: u32 = 0o077;
/// Narrowed paths that are logged one by one.
const MAX_LOGGED: usize = 200;
/// Directories of a data directory that may be symbolic links, to another volume.
const LINKED_DIRS: [&str; 2] = ["pki", "store"];

/// Makes everything that the process creates from now on private to its owner. Must be called before there
/// are threads.
pub fn set_umask() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(OTHERS));
}

/// Creates a directory and its missing parents with mode 0700.
///
/// # Errors
/// Errors of the file system.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a file with mode 0600; fails if it exists.
///
/// # Errors
/// Errors of the file system.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Removes the permissions of group and others from a data directory and everything in it. Directories come
/// before their content, and links are not followed except `LINKED_DIRS`, so that no other user can
/// substitute a file for one that is narrowed. A path with another owner stays as it is, with a warning:
/// volumes of some systems have a foreign owner at their root.
///
/// # Errors
/// When the directory cannot be read.
pub fn narrow(root: &Path) -> io::Result<()> {
    let mut narrowed = 0;
    let mut rest = vec![root.to_owned()];
    for part in LINKED_DIRS {
        let part = root.join(part);
        if fs::symlink_metadata(&part).is_ok_and(|found| found.is_symlink()) {
            // A dangling link is reported by whatever opens it.
            rest.extend(part.canonicalize());
        }
    }
    while let Some(path) = rest.pop() {
        let metadata = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata,
            // RocksDB of a running server removes files during this scan.
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
                Ok(()) if narrowed <= MAX_LOGGED => {
                    let mode = format!("{:o}", mode & 0o7777);
                    tracing::warn!(
                        path = %path.display(),
                        mode,
                        "path of the data directory was readable by others; its mode was narrowed"
                    );
                }
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::warn!(
                    %error,
                    path = %path.display(),
                    "path of the data directory is readable by others and its mode cannot be narrowed; \
                        restrict it to the server's user"
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
    if narrowed > MAX_LOGGED {
        let paths = narrowed - MAX_LOGGED;
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
    fn created_files_are_private() {
        let dir = tempfile::tempdir().unwrap();
        create_dir_all(&dir.path().join("a/b")).unwrap();
        create_dir_all(&dir.path().join("a/b")).unwrap();
        drop(create_new(&dir.path().join("a/b/c")).unwrap());
        let modes: Vec<u32> = ["a", "a/b", "a/b/c"].iter().map(|name| mode(&dir.path().join(name))).collect();
        assert_eq!(modes, [0o700, 0o700, 0o600]);
        assert!(create_new(&dir.path().join("a/b/c")).is_err());
    }
}
