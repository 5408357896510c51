//! Tests of commands that run models.

mod answer;
mod compare;
mod compare_all;
mod engines;
mod limits;
mod programs;
mod run;
mod sides;
mod sizes;
mod steps;
mod texts;
