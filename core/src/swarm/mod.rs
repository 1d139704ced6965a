//! The swarm room: goals, plans, tasks, results and decisions. Tables only so far.

pub mod tables;
