//! Integration tests of the use cases that need a fault, a clock or an intruder in the memory
//! store. What every store promises stands in the suites of the test kit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod audit;
mod checkpoint;
mod commit;
mod crash;
mod feed;
mod flow;
mod flow_absent;
mod flow_approval;
mod flow_ask;
mod flow_cache;
mod flow_claim;
mod flow_doubt;
mod flow_dry;
mod flow_edit;
mod flow_four_eyes;
mod flow_lanes;
mod flow_levels;
mod flow_link;
mod flow_maps;
mod flow_narrow;
mod flow_nest;
mod flow_order;
mod flow_outage;
mod flow_patch;
mod flow_places;
mod flow_plan;
mod flow_rebuild;
mod flow_replay;
mod flow_restore;
mod flow_retry;
mod flow_review;
mod flow_sight;
mod flow_size;
mod flow_slots;
mod flow_spans;
mod flow_start;
mod flow_stop;
mod flow_store;
mod flow_undo;
mod flow_undo_once;
mod flow_unwritten;
mod flow_who;
mod simulate;
mod verify;
