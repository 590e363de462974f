// SPDX-License-Identifier: GPL-2.0-only
//! `drover manual`: what packages need that follows from the command line.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use super::examples::{PAGES, STATUSES};
use super::given::without_file_names;

/// Of commands that root runs.
const SECTION: &str = "8";
/// What bash and fish offer beside the command line: VMs that are here, to those who may ask.
const BASH_VMS: &str = include_str!("complete_vms.bash");
const FISH_VMS: &str = include_str!("complete_vms.fish");

#[derive(clap::Args)]
pub struct Args {
    /// Where man pages and completions are written; is made.
    dir: PathBuf,
}

/// Writes a man page for each command, and completions of that command line for three shells.
pub fn run(args: &Args, cli: Command) -> Result<ExitCode> {
    write(&args.dir, without_file_names(visible(cli)))
        .with_context(|| format!("cannot write into {}", args.dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn write(dir: &Path, mut cli: Command) -> Result<()> {
    fs::create_dir_all(dir)?;
    // Before the completions, which give the command line its help commands.
    let mut with_names = without_help(cli.clone());
    with_names.build();
    write_pages(dir, &with_names)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let file = clap_complete::generate_to(shell, &mut cli, "drover", dir)?;
        let more = match shell {
            Shell::Bash => BASH_VMS,
            Shell::Fish => FISH_VMS,
            _ => "",
        };
        fs::OpenOptions::new().append(true).open(file)?.write_all(more.as_bytes())?;
    }
    Ok(())
}

fn write_pages(dir: &Path, command: &Command) -> Result<()> {
    for below in command.get_subcommands() {
        write_pages(dir, below)?;
    }
    let man = Man::new(command.clone()).section(SECTION);
    let mut page = Vec::new();
    man.render(&mut page)?;
    page.extend(examples_and_statuses(command).into_bytes());
    fs::write(dir.join(man.get_filename()), page)?;
    Ok(())
}

/// The sections of a page that do not follow from the command line; none for what is only a group of commands.
fn examples_and_statuses(command: &Command) -> String {
    let words = command.get_display_name().unwrap_or_default();
    let words = words.strip_prefix("drover-").unwrap_or(words).replacen('-', " ", 1);
    let Some(page) = PAGES.iter().find(|page| page.command == words) else {
        return String::new();
    };
    let mut text = ".SH EXAMPLES\n".to_owned();
    for (what, line) in page.examples {
        text += &format!(".PP\n{}\n.PP\n.RS 4\n.nf\n{}\n.fi\n.RE\n", roff(what), roff(line));
    }
    text += ".SH \"EXIT STATUS\"\n";
    let own = page.statuses.iter().copied();
    let usual = STATUSES.iter().copied();
    let usual = usual.filter(|(status, _)| page.statuses.iter().all(|(own, _)| own != status));
    let mut all: Vec<(u8, &str)> = own.chain(usual).collect();
    all.sort_unstable();
    for (status, meaning) in all {
        text += &format!(".TP\n.B {status}\n{}\n", roff(meaning));
    }
    text
}

/// A line as it is shown.
fn roff(line: &str) -> String {
    line.replace('\\', "\\(rs").replace('-', "\\-").replace('\'', "\\(aq")
}

/// The command line without what is for tests and the lab.
fn visible(cli: Command) -> Command {
    let shown = cli.get_subcommands().filter(|below| !below.is_hide_set()).cloned();
    let shown: Vec<Command> = shown.collect();
    let about = cli.get_about().cloned().unwrap_or_default();
    Command::new("drover").about(about).version(env!("CARGO_PKG_VERSION")).subcommands(shown)
}

/// `drover vm help list` needs no page beside that of `drover vm list`.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn pages_and_completions_are_of_what_people_use() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), without_file_names(visible(crate::Cli::command()))).unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        let page = read("drover-vm-set.8");
        assert!(page.contains("reservation"));
        let shown = "drover vm set web \\-\\-limit default\n.fi\n";
        assert!(
            page.contains(shown) && page.contains(".SH \"EXIT STATUS\"\n.TP\n.B 0\n"),
            "{page}"
        );
        assert!(read("drover-serve.8").contains("\n.B 70\n"));
        let bash = read("drover.bash");
        for hidden in ["lab-init", "soak", "policy-cost"] {
            assert!(!bash.contains(hidden), "{hidden}");
        }
        assert!(bash.contains("relaxed") && bash.contains("_drover_vms"));
    }

    /// The names of all commands below, as they are typed.
    fn commands(command: &Command, above: &str) -> Vec<String> {
        let below = command.get_subcommands();
        let named = below.map(|it| (it, format!("{above} {}", it.get_name()).trim().to_owned()));
        named
            .flat_map(|(it, name)| match it.has_subcommands() {
                true => commands(it, &name),
                false => vec![name],
            })
            .collect()
    }

    #[test]
    fn every_command_has_examples_that_are_understood_and_its_page_says_what_its_status_means() {
        let cli = visible(crate::Cli::command());
        let mut all = commands(&cli, "");
        let mut with_page: Vec<String> = PAGES.iter().map(|it| it.command.to_owned()).collect();
        all.sort_unstable();
        with_page.sort_unstable();
        assert_eq!(all, with_page);
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), cli.clone()).unwrap();
        for page in PAGES {
            let file = format!("drover-{}.8", page.command.replace(' ', "-"));
            let text = fs::read_to_string(dir.path().join(&file)).unwrap();
            for head in [".SH EXAMPLES", ".SH \"EXIT STATUS\""] {
                assert_eq!(text.matches(head).count(), 1, "{file}: {head}");
            }
            assert!(!page.examples.is_empty(), "{file}");
            for (_, line) in page.examples {
                let words = line.split(' ').map(|word| word.trim_matches('\''));
                cli.clone()
                    .try_get_matches_from(words)
                    .unwrap_or_else(|err| panic!("{line}: {err}"));
                assert!(line.starts_with(&format!("drover {}", page.command)), "{line}");
            }
        }
    }

    /// What bash offers after an option of a command: the lines of its case.
    fn offered<'a>(bash: &'a str, command: &str, option: &str) -> Vec<&'a str> {
        let mut lines = bash.lines().map(str::trim);
        assert!(lines.any(|line| line == format!("{command})")), "{command}");
        assert!(lines.any(|line| line == format!("{option})")), "{option}");
        lines.take_while(|line| *line != ";;").collect()
    }

    #[test]
    fn file_names_are_offered_where_files_are_meant_and_words_where_these_are_known() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), without_file_names(visible(crate::Cli::command()))).unwrap();
        let bash = fs::read_to_string(dir.path().join("drover.bash")).unwrap();
        for (command, option, words) in [
            ("drover__subcmd__partition__subcmd__add", "--policy", "share credit dedicated"),
            ("drover__subcmd__partition__subcmd__add", "--slice", ""),
            ("drover__subcmd__set__subcmd__add", "--kind", "affine anti-affine"),
            ("drover__subcmd__set__subcmd__add", "--within", "llc node"),
            ("drover__subcmd__pool__subcmd__add", "--cosched", "strict"),
            ("drover__subcmd__run", "--scheduler", "eevdf drover"),
            ("drover__subcmd__run", "--seed", ""),
            ("drover__subcmd__serve", "--domains", "pcpu llc node host"),
            ("drover__subcmd__vm__subcmd__set", "--limit", "none default"),
        ] {
            let told = offered(&bash, command, option).concat();
            assert!(
                told.contains(words) && !told.contains("compgen -f"),
                "{command} {option}: {told}"
            );
        }
        for (command, option) in [
            ("drover__subcmd__run", "--json"),
            ("drover__subcmd__run", "--kernel"),
            ("drover__subcmd__serve", "--config"),
        ] {
            let told = offered(&bash, command, option).concat();
            assert!(told.contains("compgen -f"), "{command} {option}: {told}");
        }
    }
}
