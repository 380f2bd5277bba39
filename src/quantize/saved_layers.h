/// Layers that an interrupted run has finished, in a directory beside the output.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "quantize/layer_calibration.h"

namespace ts {

class SavedLayers {
 public:
  /// `identity` stands for everything the results depend on: what another run has saved is not
  /// used. Nothing is written before save().
  SavedLayers(const std::filesystem::path& output, std::string identity);

  /// Fills the results of the jobs; false when the layer is not there or of another run.
  bool load(int64_t layer, const std::vector<LayerCalibration::Job>& jobs) const;
  void save(int64_t layer, const std::vector<LayerCalibration::Job>& jobs) const;
  /// Removes the directory.
  void remove() const noexcept;

 private:
  std::filesystem::path path(int64_t layer) const;
  std::filesystem::path directory_;
  std::string identity_;
};

}  // namespace ts
