// SPDX-License-Identifier: GPL-2.0-only
//! Packages from the machine's own archive, without root and without a change to the machine.
//!
//! The lab wants a newer kernel than most releases have. It asks the machine's apt which archive and which
//! keyring it uses, writes a configuration of its own into the cache that names other suites of the *same*
//! archive, and downloads with that. apt checks the signatures; nothing is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cache::{Cache, write_file};

/// The archive the machine installs from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// Address, as the machine's apt configuration has it.
    pub uri: String,
    /// `debian` or `ubuntu`, from `/etc/os-release`.
    pub distribution: String,
    /// Value of the source's `Signed-By`: a keyring's path or the key itself, several lines then.
    pub signed_by: Option<String>,
}

/// One line of `apt-get indextargets`: where an index comes from.
const TARGET_FORMAT: &str = "$(CREATED_BY)|$(SITE)|$(RELEASE)|$(COMPONENT)|$(SOURCESENTRY)";

impl Archive {
    /// Asks the machine's apt.
    ///
    /// # Errors
    /// When there is no apt, or it knows no archive of a Debian or Ubuntu release.
    pub fn of_this_machine() -> Result<Self> {
        let os_release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let targets = output(Command::new("apt-get").args([
            "indextargets",
            "--no-release-info",
            "--format",
            TARGET_FORMAT,
        ]))?;
        let (mut archive, entry) = Self::parse(&os_release, &targets)?;
        archive.signed_by = signed_by(&entry);
        Ok(archive)
    }

    /// The archive of the running release, and the place of its entry in apt's configuration.
    fn parse(os_release: &str, targets: &str) -> Result<(Self, String)> {
        let field = |name: &str| {
            os_release
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
                .map(|value| value.trim_matches('"').to_owned())
        };
        let ids =
            format!("{} {}", field("ID").unwrap_or_default(), field("ID_LIKE").unwrap_or_default());
        let distribution = if ids.contains("ubuntu") {
            "ubuntu"
        } else if ids.contains("debian") {
            "debian"
        } else {
            bail!("kernels can be fetched on Debian and Ubuntu only; give one with --kernel PATH")
        };
        let codename = field("VERSION_CODENAME").unwrap_or_default();
        let moving = ["stable", "testing", "unstable", "sid", "devel"];
        for line in targets.lines() {
            let [created_by, site, release, component, entry] =
                line.split('|').collect::<Vec<_>>()[..]
            else {
                continue;
            };
            let ours = release == codename || moving.contains(&release);
            if created_by == "Packages" && component == "main" && ours {
                let distribution = distribution.to_owned();
                let uri = site.to_owned();
                return Ok((Self { uri, distribution, signed_by: None }, entry.to_owned()));
            }
        }
        bail!(
            "apt knows no archive of this release ({codename}); add one to /etc/apt or give a kernel with --kernel PATH"
        )
    }

    /// The source entries for the suites given, in apt's deb822 format.
    fn sources(&self, suites: &[&str]) -> String {
        let mut text = String::new();
        for suite in suites {
            text += &format!("Types: deb\nURIs: {}\nSuites: {suite}\nComponents: main\n", self.uri);
            if let Some(signed_by) = &self.signed_by {
                text += &format!("Signed-By: {signed_by}\n");
            }
            text.push('\n');
        }
        text
    }
}

/// The `Signed-By` of a source entry named `FILE:N` (N-th stanza of a `.sources` file, line of a `.list`).
fn signed_by(entry: &str) -> Option<String> {
    let (path, number) = entry.rsplit_once(':')?;
    let text = fs::read_to_string(path).ok()?;
    let number: usize = number.parse().ok()?;
    if path.ends_with(".sources") {
        deb822_signed_by(&text, number)
    } else {
        list_signed_by(&text, number)
    }
}

fn deb822_signed_by(text: &str, stanza: usize) -> Option<String> {
    let uncommented: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let stanza = uncommented
        .split(|line| line.trim().is_empty())
        .filter(|lines| !lines.is_empty())
        .nth(stanza.checked_sub(1)?)?;
    let at = stanza.iter().position(|line| line.to_ascii_lowercase().starts_with("signed-by:"))?;
    let first = stanza[at].split_once(':')?.1.trim();
    let rest = stanza[at + 1..].iter().take_while(|line| line.starts_with([' ', '\t']));
    Some(rest.fold(first.to_owned(), |value, line| format!("{value}\n{line}")))
}

fn list_signed_by(text: &str, line: usize) -> Option<String> {
    let (_, rest) = text.lines().nth(line.checked_sub(1)?)?.split_once('[')?;
    let (options, _) = rest.split_once(']')?;
    options
        .split_whitespace()
        .find_map(|option| option.strip_prefix("signed-by="))
        .map(str::to_owned)
}

/// apt with a configuration of our own, kept in the cache.
pub struct PrivateApt {
    config: PathBuf,
    archives: PathBuf,
}

impl PrivateApt {
    /// Writes the configuration; nothing is fetched yet.
    ///
    /// # Errors
    /// When the cache cannot be written.
    pub fn new(cache: &Cache, archive: &Archive, suites: &[&str]) -> Result<Self> {
        let root = cache.dir("apt")?;
        for dir in ["lists/partial", "cache/archives/partial", "sources.d"] {
            cache.dir(&format!("apt/{dir}"))?;
        }
        write_file(&root.join("sources.d/lab.sources"), archive.sources(suites).as_bytes())?;
        let config = root.join("apt.conf");
        write_file(&config, configuration(&root).as_bytes())?;
        Ok(Self { config, archives: root.join("cache/archives") })
    }

    /// Fetches the package lists. A suite the archive does not have is not an error as long as another is
    /// there: what counts is what [`PrivateApt::search`] finds afterwards, so the trouble is returned.
    ///
    /// # Errors
    /// When apt-get is not there.
    pub fn update(&self) -> Result<Option<String>> {
        let result =
            self.command("apt-get").args(["--quiet=2", "update"]).output().context(NO_APT)?;
        let complaints = String::from_utf8_lossy(&result.stderr).into_owned();
        Ok((!result.status.success()).then(|| first_error(&complaints)))
    }

    /// Full records of the packages whose name matches a regular expression.
    ///
    /// # Errors
    /// When apt-cache fails.
    pub fn search(&self, regex: &str) -> Result<String> {
        output(self.command("apt-cache").args(["search", "--names-only", "--full", regex]))
    }

    /// Downloads packages, each `NAME=VERSION`; gives their files, and the directory they go with.
    ///
    /// # Errors
    /// apt's own first error line, with what to do.
    pub fn download(&self, packages: &[String]) -> Result<(tempfile::TempDir, Vec<PathBuf>)> {
        let dir = tempfile::tempdir_in(&self.archives)?;
        output(
            self.command("apt-get")
                .args(["--quiet=2", "download"])
                .args(packages)
                .current_dir(&dir),
        )?;
        let mut files = Vec::new();
        for entry in fs::read_dir(&dir)? {
            files.push(entry?.path());
        }
        ensure!(files.len() == packages.len(), "apt-get download brought {} files", files.len());
        Ok((dir, files))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.arg("-c").arg(&self.config).env("LC_ALL", "C");
        command
    }
}

/// apt's configuration: everything it writes is below `root`; proxies stay as the machine has them.
fn configuration(root: &Path) -> String {
    let root = root.display();
    format!(
        "Dir::Etc::SourceList \"/dev/null\";\n\
         Dir::Etc::SourceParts \"{root}/sources.d\";\n\
         Dir::Etc::Preferences \"/dev/null\";\n\
         Dir::Etc::PreferencesParts \"/dev/null\";\n\
         Dir::State::Lists \"{root}/lists\";\n\
         Dir::Cache \"{root}/cache\";\n\
         APT::Sandbox::User \"root\";\n\
         APT::Default-Release \"\";\n\
         Acquire::Languages \"none\";\n\
         APT::Update::Error-Mode \"any\";\n\
         Acquire::Retries \"2\";\n\
         Acquire::http::Timeout \"20\";\n\
         Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n\
         #clear APT::Update::Pre-Invoke;\n\
         #clear APT::Update::Post-Invoke;\n\
         #clear APT::Update::Post-Invoke-Success;\n"
    )
}

const NO_APT: &str = "cannot run apt: give the lab a kernel with --kernel PATH";

/// Runs a command and gives what it printed.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let result = command.output().with_context(|| format!("{NO_APT} ({program} is not there)"))?;
    let complaints = String::from_utf8_lossy(&result.stderr);
    ensure!(result.status.success(), "{program} failed: {}", first_error(&complaints));
    Ok(String::from_utf8_lossy(&result.stdout).into_owned())
}

/// The line of apt's that tells most: its first error, without the mark in front.
fn first_error(complaints: &str) -> String {
    let line = complaints
        .lines()
        .find(|line| line.starts_with("E: "))
        .or_else(|| complaints.lines().next());
    line.map_or_else(
        || "it did not say why".to_owned(),
        |line| line.trim_start_matches("E: ").to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const OS_RELEASE: &str = "NAME=\"Debian GNU/Linux\"\nID=debian\nVERSION_CODENAME=trixie\n";

    #[test]
    fn the_archive_of_the_running_release_is_taken() {
        let targets = "Packages|http://security.example/d|trixie-security|main|/e/a.sources:2\n\
                       DEP-11|http://a.example/debian|trixie|main|/e/a.sources:1\n\
                       Packages|http://other.example/x|trixie|contrib|/e/o.list:1\n\
                       Packages|http://a.example/debian|trixie|main|/e/a.sources:1\n";
        let (archive, entry) = Archive::parse(OS_RELEASE, targets).unwrap();
        assert_eq!(archive.uri, "http://a.example/debian");
        assert_eq!(archive.distribution, "debian");
        assert_eq!(entry, "/e/a.sources:1");
    }

    #[test]
    fn a_machine_on_a_moving_suite_is_understood() {
        let (archive, _) =
            Archive::parse("ID=debian\n", "Packages|http://a.example/d|sid|main|/e:1\n").unwrap();
        assert_eq!(archive.uri, "http://a.example/d");
    }

    #[test]
    fn ubuntu_is_told_from_debian_although_it_is_like_it() {
        let os_release = "ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n";
        let (archive, _) =
            Archive::parse(os_release, "Packages|http://u.example/u|noble|main|/e:1\n").unwrap();
        assert_eq!(archive.distribution, "ubuntu");
    }

    #[test]
    fn other_machines_are_told_what_to_do() {
        let message = Archive::parse("ID=fedora\n", "").unwrap_err().to_string();
        assert!(message.contains("--kernel PATH"), "{message}");
        let message = Archive::parse(OS_RELEASE, "").unwrap_err().to_string();
        assert!(message.contains("trixie") && !message.contains('\n'), "{message}");
    }

    #[test]
    fn signed_by_is_found_in_both_formats() {
        let sources = "# comment\nTypes: deb\nSigned-By: /a.gpg\n\nTypes: deb\n# c\nURIs: x\nSigned-By:\n -----BEGIN\n .\n abc\nSuites: s\n";
        assert_eq!(deb822_signed_by(sources, 1).unwrap(), "/a.gpg");
        assert_eq!(deb822_signed_by(sources, 2).unwrap(), "\n -----BEGIN\n .\n abc");
        assert_eq!(deb822_signed_by(sources, 3), None);
        let list = "# none\ndeb [arch=amd64 signed-by=/k.gpg] http://a.example s main\ndeb http://b.example s main\n";
        assert_eq!(list_signed_by(list, 2).unwrap(), "/k.gpg");
        assert_eq!(list_signed_by(list, 3), None);
    }

    #[test]
    fn sources_name_each_suite_with_the_key() {
        let archive = Archive {
            uri: "http://a.example/debian".into(),
            distribution: "debian".into(),
            signed_by: Some("/k.gpg".into()),
        };
        let text = archive.sources(&["testing", "stable-backports"]);
        assert_eq!(text.matches("Signed-By: /k.gpg\n").count(), 2);
        assert!(text.contains("Suites: stable-backports\n"));
    }

    #[test]
    fn the_private_configuration_lies_in_the_cache() {
        let home = tempfile::tempdir().unwrap();
        let cache = Cache::at(home.path()).unwrap();
        let archive = Archive {
            uri: "http://a.example/debian".into(),
            distribution: "debian".into(),
            signed_by: None,
        };
        PrivateApt::new(&cache, &archive, &["testing"]).unwrap();
        let sources = fs::read_to_string(home.path().join("apt/sources.d/lab.sources")).unwrap();
        assert!(sources.contains("Suites: testing\n") && !sources.contains("Signed-By"));
        assert!(home.path().join("apt/apt.conf").exists());
        assert!(home.path().join("apt/lists/partial").is_dir());
    }

    #[test]
    fn a_program_that_is_not_there_gives_one_line() {
        let error = output(&mut Command::new("no-such-apt")).unwrap_err();
        assert!(format!("{error:#}").contains("--kernel PATH"));
        let error = output(Command::new("sh").args(["-c", "echo 'E: broken' >&2; exit 1"]));
        assert_eq!(error.unwrap_err().to_string(), "sh failed: broken");
    }

    #[test]
    fn the_first_error_is_what_the_user_sees() {
        assert_eq!(
            first_error("W: slow\nE: Unable to locate package x\nE: more"),
            "Unable to locate package x"
        );
        assert_eq!(first_error(""), "it did not say why");
    }

    #[test]
    fn all_that_apt_writes_is_private() {
        let text = configuration(Path::new("/c/apt"));
        for key in ["Dir::State::Lists \"/c/apt/", "Dir::Cache \"/c/apt/", "SourceParts \"/c/apt/"]
        {
            assert!(text.contains(key), "{key}");
        }
    }
}
