//! `stallscope rules [ID]`: the rules, or all about one.

use clap::Args;

use super::Run;
use super::shared::output::Output;
use crate::diagnose::{RULES, told};
use crate::exit::{Exit, Stop};
use crate::report;
use crate::typo::{nearest, question};

/// Letters that a typo may have wrong.
const LETTERS: usize = 3;

/// List the rules, or explain one.
#[derive(Args, Debug)]
pub(super) struct Rules {
    /// Rule to explain; without it, one line per rule.
    id: Option<String>,
    /// How to print.
    #[command(flatten)]
    output: Output,
}

impl Run for Rules {
    fn run(&self) -> anyhow::Result<Exit> {
        let chosen: Vec<_> = match &self.id {
            None => RULES.to_vec(),
            Some(id) => RULES.iter().copied().filter(|r| r.id().0 == id).collect(),
        };
        if let (Some(id), true) = (&self.id, chosen.is_empty()) {
            if told::RULES.contains(&&**id) {
                let text = format!("rule '{id}' applies only to pasted text: `stallscope explain`");
                return Err(Stop::usage(text));
            }
            let near = nearest(id, RULES.iter().map(|r| r.id().0), LETTERS);
            let hint = question(&near).unwrap_or("`stallscope rules` lists them".to_owned());
            return Err(Stop::usage(format!("no rule '{id}'; {hint}")));
        }
        let text = || match &self.id {
            None => report::rules::list(&chosen),
            Some(_) => chosen.iter().map(|r| report::rules::page(r, RULES)).collect(),
        };
        self.output.print(text, || report::rules::json(&chosen))?;
        Ok(Exit::Ok)
    }
}
