//! Manual pages and completions: nothing that the command line takes is missing in them, and
//! they are the same whenever they are made.

use std::collections::BTreeSet;
use std::fs;

use clap::{Arg, Command, CommandFactory as _};
use stallscope::commands::{self, Cli};
use stallscope::exit::Exit;
use stallscope::help::TOPICS;

use crate::support::files::Dir;
use crate::support::program::{refused, run, stderr, stdout};

const SHELLS: [&str; 4] = ["bash", "zsh", "fish", "elvish"];

#[track_caller]
fn said(args: &[&str]) -> String {
    let o = run(args);
    assert_eq!((o.status.code(), &*stderr(&o)), (Some(0), ""), "{args:?}");
    stdout(&o)
}

/// As a reader sees it: without fonts and escapes.
fn read(page: &str) -> String {
    let plain = ["\\fB", "\\fI", "\\fR"].iter().fold(page.to_owned(), |t, f| t.replace(f, ""));
    plain.replace("\\-", "-").replace("\\*(Aq", "'")
}

/// The program, and below it each command, as clap knows them; with the arguments of `man`.
fn all() -> Vec<(Vec<&'static str>, Command)> {
    let mut cli = Cli::command();
    cli.build();
    let below = commands::names()
        .map(|name| (vec!["man", name], cli.find_subcommand(name).unwrap().clone()));
    below.chain([(vec!["man"], cli.clone())]).collect()
}

fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|a| !a.is_hide_set())
}

#[test]
fn a_page_names_every_flag_of_its_command() {
    for (args, command) in all() {
        let page = read(&said(&args));
        // Some are in a section of their own, which --help has as well.
        let own: BTreeSet<String> = shown(&command)
            .filter_map(|a| Some(format!("\"{}\"", a.get_help_heading()?.to_uppercase())))
            .collect();
        let flags =
            page.split("\n.SH ").skip(1).filter_map(|s| s.split_once('\n')).filter(|(title, _)| {
                *title == "OPTIONS" || own.contains(&title.replace("\\ ", " "))
            });
        let heads: Vec<&str> = flags
            .flat_map(|(_, text)| text.split(".TP\n").filter_map(|p| p.lines().next()))
            .collect();
        for arg in shown(&command) {
            let long = arg.get_long().map(|l| format!("--{l}"));
            let short = arg.get_short().map(|s| format!("-{s}"));
            let value = arg.is_positional().then(|| arg.get_value_names().unwrap()[0].to_string());
            for name in [long, short, value].into_iter().flatten() {
                let is_it = |h: &&str| {
                    h.split([' ', ',', '[', ']', '<', '>', '=']).any(|word| word == name)
                };
                assert!(heads.iter().any(is_it), "{args:?}: {name}: {heads:#?}");
            }
        }
        assert_eq!(heads.len(), shown(&command).count(), "{args:?}: {heads:#?}");
    }
}

#[test]
fn a_page_has_what_is_common_to_all() {
    for (args, command) in all() {
        let page = read(&said(&args));
        let title = command.get_display_name().unwrap_or("stallscope");
        let version = env!("CARGO_PKG_VERSION");
        let head = format!(
            ".TH \"{}\" \"1\" \"\" \"stallscope {version}\" \"User Commands\"\n",
            title.to_uppercase()
        );
        assert!(page.contains(&head), "without a date, {head}{page}");
        assert!(page.contains(&format!("\n.SH NAME\n{title} - ")), "{page}");
        for code in Exit::ALL {
            let row = format!("\n.TP\n{}\n{}\n", code as u8, code.meaning());
            assert!(page.contains(&row), "{args:?}: {row}{page}");
        }
        for t in TOPICS {
            assert!(page.contains(&format!("\nstallscope help {}\n", t.name)), "{args:?}");
        }
        for name in ["NO_COLOR", "XDG_CONFIG_HOME", "/var/lib/stallscope/"] {
            assert!(page.contains(name), "{args:?}: {name}");
        }
        let others = page.split("\n.SH \"SEE ALSO\"\n").nth(1).unwrap();
        let named = |t: &str| others.contains(&format!("{t}(1)"));
        assert_eq!(others.matches("(1)").count(), commands::names().count(), "{others}");
        assert!(named("stallscope-check") || title == "stallscope-check", "{others}");
    }
}

/// What a formatter would complain about; `.ci/package` asks one.
#[test]
fn pages_are_made_of_known_macros() {
    let known =
        [".TH", ".SH", ".TP", ".PP", ".IP", ".br", ".sp", ".nf", ".fi", ".RS", ".RE", ".ie", ".el"];
    for (args, _) in all() {
        let page = said(&args);
        let mut used = Vec::new();
        for line in page.lines() {
            assert!(line.chars().all(stallscope::text::is_plain), "{args:?}: {line:?}");
            assert!(!line.is_empty() && !line.starts_with('\''), "{args:?}: {line:?}\n{page}");
            if line.starts_with('.') {
                let name = line.split(' ').next().unwrap();
                assert!(known.contains(&name), "{args:?}: {line}");
                used.push(name);
            }
        }
        let count = |name| used.iter().filter(|u| **u == name).count();
        assert_eq!(count(".TH"), 1);
        assert_eq!((count(".nf"), count(".RS")), (count(".fi"), count(".RE")), "{args:?}");
    }
}

#[test]
fn a_directory_gets_a_page_for_each_command() {
    let dir = Dir::new();
    let out = dir.file("man1");
    fs::create_dir(&out).unwrap();
    let out = out.to_str().unwrap();
    for _ in 0..2 {
        assert_eq!(said(&["man", "-o", out]), "");
    }
    let written: BTreeSet<String> =
        fs::read_dir(out).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    let mut wanted = BTreeSet::from(["stallscope.1".to_owned()]);
    wanted.extend(commands::names().map(|c| format!("stallscope-{c}.1")));
    assert_eq!(written, wanted);
    for (args, _) in all() {
        let name = args.get(1).map_or(String::new(), |c| format!("-{c}"));
        let file = fs::read_to_string(format!("{out}/stallscope{name}.1")).unwrap();
        assert_eq!(file, said(&args));
    }
    // Not even root may: it is no directory.
    let o = run(["man", "-o", &format!("{out}/stallscope.1")]);
    refused(&o, 3, "-o takes a directory");
    assert_eq!(stderr(&o).lines().count(), 1);
}

#[test]
fn completions_name_every_command_and_flag() {
    for shell in SHELLS {
        let script = said(&["completions", shell]);
        for (_, command) in all() {
            // Fish names an option without its dashes.
            let dashes = if shell == "fish" { "-l " } else { "--" };
            for long in shown(&command).filter_map(Arg::get_long) {
                assert!(script.contains(&format!("{dashes}{long}")), "{shell}: {long}");
            }
        }
        for command in commands::names() {
            let named = [format!("{command} "), format!("'{command}'"), format!("\"{command}\"")];
            assert!(named.iter().any(|n| script.contains(n)), "{shell}: {command}");
        }
        // The other two complete no values that are not those of a flag.
        let looked_up = ["softirq-one-core", "exit-codes"];
        let completes = ["bash", "zsh"].contains(&shell);
        assert!(!completes || looked_up.iter().all(|n| script.contains(n)), "{shell}");
    }
}
