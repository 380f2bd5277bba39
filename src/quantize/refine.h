/// Improvement of finished codes and scales under a metric, row by row.
#pragma once

#include <vector>

#include "quantize/loss_metric.h"
#include "quantize/row_block.h"
#include "quantize/ternary_options.h"

namespace ts {

/// `sweeps` rounds of coordinate descent on the codes and exact refit of the scales, then one more
/// descent for the final scales. Ends early when a round changes nothing. The loss of no row rises.
void refine(const RowBlock& block, const LossMetric& metric, const TernaryOptions& options,
            int sweeps);

/// For planes fitted together (dense codes): moves codes and scales so that the first planes alone
/// lose less, at some cost to all together. The sum of the losses of all prefixes of the planes,
/// each weighted by prefix_weight times the weight of the next longer one, never rises in any row.
void balance_prefixes(const RowBlock& block, const LossMetric& metric, double prefix_weight,
                      int rounds);

/// Coordinate descent: one pass over the columns of every row. `errors` [rows, cols] = values -
/// weights and `gradients` [rows, cols] = errors * H are kept up to date. Returns the number of
/// weights whose value changed.
int64_t descend(const RowBlock& block, const LossMetric& metric, const TernaryOptions& options,
                std::vector<float>& errors, std::vector<float>& gradients);

/// Moves pairs of weights together where that lowers the loss although neither move alone would;
/// dense codes only. Otherwise as descend(). Returns the number of pairs.
int64_t descend_by_pairs(const RowBlock& block, const LossMetric& metric,
                         std::vector<float>& errors, std::vector<float>& gradients);

/// The scales that are best for the codes as they are, all groups of a row together: the change d
/// solves (C' H C) d = -C' H e, with the codes of each group (tied planes: their sum in the fixed
/// ratio) as columns of C. Scales that would not be positive stay as they are, and so does a row
/// whose loss would not fall once the scales are rounded. Updates scales, values and errors, not
/// the gradients. Returns the number of rows that changed.
int64_t refit_scales(const RowBlock& block, const LossMetric& metric, const TernaryOptions& options,
                     std::vector<float>& errors, const std::vector<float>& gradients);

}  // namespace ts
