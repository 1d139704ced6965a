//! Tools against real servers on this machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_methods, reason = "tests hold the real environment")]

mod call_log;
mod client;
mod cut_connections;
mod declared;
mod dry_run;
mod fixtures;
mod hosts;
mod http;
mod large_answers;
mod local;
mod mail;
mod notify;
mod pdf;
mod planner;
mod planner_accounts;
mod planner_goals;
mod planner_prepositions;
mod planner_words;
mod redirect;
mod reference;
mod repeated;
mod s3;
mod server;
mod slack;
mod tenants;
mod vendor;
mod webhook;
