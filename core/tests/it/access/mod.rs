//! The access room: the risk of plans, and how freely they may act.

mod autonomy;
mod factor;
mod given;
mod risk;
