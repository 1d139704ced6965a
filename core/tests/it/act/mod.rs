//! Tests of the act room: risk scores, autonomy levels, and what a plan would call.

mod autonomy;
mod factor;
mod given;
mod layout;
mod outside;
mod risk;
