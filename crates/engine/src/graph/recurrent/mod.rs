//! The steps of recurrent operators: one product with W for all steps ([`product`]), and one operator
//! that runs the steps ([`run`]), each by [`cell`]. Nothing is kept between runs.

pub(crate) mod cell;
pub(crate) mod product;
pub(crate) mod quantised;
pub(crate) mod run;

pub(crate) use run::RecurrentRun;
