//! The act room: plans of goals, the risk of plans, and how freely they may act.

mod autonomy;
mod factor;
mod given;
mod layout;
mod outside;
mod risk;
