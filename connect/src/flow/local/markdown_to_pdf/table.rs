//! Lays out tables.
//!
//! Columns get the width of their longest line if there is room, and otherwise share it by their longest words. A row
//! stays on one page if any page can hold it; the header is repeated on each page.

use super::error::RenderError;
use super::fonts::{ASCENT, DESCENT};
use super::layout::LayoutBuilder;
use super::lines::{Cell, TextLine, extent, wrap};
use super::page::{Color, DrawOp};
use super::parse::Table;
use pulldown_cmark::Alignment;
use std::ops::Range;

const SIZE: f32 = 9.5;
const HEIGHT: f32 = SIZE * 1.38;
const PAD_X: f32 = 6.0;
const PAD_Y: f32 = 4.0;
/// The fraction of the width that one word can claim for its column.
const WORD_PART: f32 = 0.4;

/// A row: the lines of each cell.
type Row = Vec<Vec<TextLine>>;

struct Grid<'t> {
    alignments: &'t [Alignment],
    /// Offset and width of each column, including padding.
    columns: Vec<(f32, f32)>,
    width: f32,
    /// The header, if it is short enough to be repeated.
    head: Option<Row>,
}

pub(super) fn draw_table(layout: &mut LayoutBuilder<'_>, table: &Table) -> Result<(), RenderError> {
    let rows: Vec<Vec<Vec<Cell>>> =
        table.rows.iter().map(|row| row.iter().map(|cell| layout.setter.cells(cell)).collect()).collect();
    let widths = widths(&rows, table.alignments.len(), layout.right - layout.left);
    let mut x = layout.left;
    let mut columns = Vec::with_capacity(widths.len());
    for width in widths {
        columns.push((x, width));
        x += width;
    }
    let set = |row: &Vec<Vec<Cell>>| -> Row {
        row.iter().zip(&columns).map(|(cells, (_, width))| wrap(cells, SIZE, width - 2.0 * PAD_X)).collect()
    };
    let rows: Vec<Row> = rows.iter().map(set).collect();
    let head = rows.first().filter(|head| height(head) < layout.page_room() / 3.0).cloned();
    let grid = Grid { alignments: &table.alignments, columns, width: x - layout.left, head };
    if let Some(first) = rows.get(1) {
        // The header never stands alone at the bottom of a page.
        layout.ensure_space((rows.first().map_or(0.0, height) + height(first)).min(layout.page_room()))?;
    }
    for (at, row) in rows.iter().enumerate() {
        draw_row(layout, &grid, row, at == 0)?;
    }
    layout.space(10.0);
    Ok(())
}

fn draw_row(layout: &mut LayoutBuilder<'_>, grid: &Grid<'_>, row: &Row, is_head: bool) -> Result<(), RenderError> {
    let whole = height(row);
    let head = grid.head.as_ref().map_or(0.0, height);
    if !is_head && whole > layout.room() && whole + head <= layout.page_room() {
        table_on_next_page(layout, grid)?;
    } else {
        layout.ensure_space(HEIGHT + 2.0 * PAD_Y)?;
    }
    let mut from = 0;
    let lines = lines(row);
    while from < lines {
        let fit = ((layout.room() - 2.0 * PAD_Y) / HEIGHT).floor().max(1.0) as usize;
        let count = fit.min(lines - from);
        draw_part(layout, grid, row, from..from + count, is_head);
        from += count;
        if from < lines {
            table_on_next_page(layout, grid)?;
        }
    }
    Ok(())
}

fn table_on_next_page(layout: &mut LayoutBuilder<'_>, grid: &Grid<'_>) -> Result<(), RenderError> {
    layout.start_page()?;
    if let Some(head) = &grid.head {
        draw_part(layout, grid, head, 0..lines(head), true);
    }
    Ok(())
}

/// Draws some lines of a row and moves below them.
fn draw_part(layout: &mut LayoutBuilder<'_>, grid: &Grid<'_>, row: &Row, shown: Range<usize>, is_head: bool) {
    let top = layout.place();
    let y = layout.y + PAD_Y + (HEIGHT - (ASCENT + DESCENT) * SIZE) / 2.0 + ASCENT * SIZE;
    let left = layout.left;
    layout.draw_markers(y);
    for (at, (cell, (x, width))) in row.iter().zip(&grid.columns).enumerate() {
        for (number, line) in cell.iter().skip(shown.start).take(shown.len()).enumerate() {
            let free = width - 2.0 * PAD_X - line.width;
            let shift = match grid.alignments.get(at) {
                Some(Alignment::Right) => free,
                Some(Alignment::Center) => free / 2.0,
                _ => 0.0,
            };
            layout.runs(line, x + PAD_X + shift.max(0.0), y + number as f32 * HEIGHT);
        }
    }
    layout.advance(shown.len() as f32 * HEIGHT + 2.0 * PAD_Y);
    let (below, width) = (layout.y - 0.4, grid.width);
    layout.draw(DrawOp::Fill { x: left, y: below, width, height: 0.6, color: Color::LINE });
    if is_head {
        layout.draw_behind(top, |y, height| DrawOp::Fill { x: left, y, width, height, color: Color::SHADE });
    }
}

fn lines(row: &Row) -> usize {
    row.iter().map(Vec::len).max().unwrap_or(0).max(1)
}

fn height(row: &Row) -> f32 {
    lines(row) as f32 * HEIGHT + 2.0 * PAD_Y
}

/// The width of each column.
fn widths(rows: &[Vec<Vec<Cell>>], columns: usize, room: f32) -> Vec<f32> {
    let mut wishes = vec![(0.0_f32, 0.0_f32); columns];
    for row in rows {
        for (wish, cells) in wishes.iter_mut().zip(row) {
            let (line, word) = extent(cells, SIZE);
            *wish = (wish.0.max(line), wish.1.max(word.min(room * WORD_PART)));
        }
    }
    let padding = 2.0 * PAD_X;
    // Slightly more than measured, to absorb rounding.
    let all = |pick: fn(&(f32, f32)) -> f32| wishes.iter().map(|wish| pick(wish) + padding + 0.1).collect::<Vec<_>>();
    let (most, least) = (all(|wish| wish.0.max(wish.1)), all(|wish| wish.1));
    let (most_sum, least_sum): (f32, f32) = (most.iter().sum(), least.iter().sum());
    if most_sum <= room {
        return most;
    }
    if least_sum > room {
        return least.iter().map(|width| width / least_sum * room).collect();
    }
    let share = (room - least_sum) / (most_sum - least_sum);
    most.iter().zip(&least).map(|(most, least)| least + (most - least) * share).collect()
}
