/// The formats of task files, one per file of this folder.
#pragma once

#include "eval/tasks/choice_task.h"

namespace ts {

extern const TaskFormat kMmluFormat, kCmmluFormat, kMmluProFormat, kHellaSwagFormat, kArcFormat,
    kArcOriginalFormat, kPiqaFormat, kBoolQFormat, kBoolQOriginalFormat, kCommonsenseQaFormat,
    kFilledContextFormat, kWinoGrandeOriginalFormat, kAquaFormat, kPlainQueryFormat;

}  // namespace ts
