#include "quantize/sample_text.h"

namespace ts {

std::string_view sample_text() noexcept {
  return R"(The harbour town of Vellen lies where a short, cold river meets the sea. Most of its houses were
built from the stone of the old quarry, and on wet mornings they take on the same grey as the water.
Fishing is no longer what feeds the people there. The boats that still go out bring back enough for
the two restaurants on the pier and for the market on Saturday, but the young have left for the
cities, and those who stayed behind repair engines, teach at the school, or rent rooms to visitors in
the summer.

When the new lighthouse keeper arrived in October, nobody expected her to stay through the winter.
She was a quiet woman of about forty who had worked for many years as a surveyor. On her first day
she walked along the whole length of the sea wall, stopped every hundred metres, and wrote something
in a small notebook. The children who followed her wanted to know what she was doing.

"I am counting the cracks," she said. "If you know where a wall is weak, you know where the storm
will try first."

"And what do you do when you have found them all?" asked the smallest of the boys.

"Then I tell the council, and the council tells me that there is no money. After that I mix the
cement myself."

They laughed, but she did exactly that. By the end of November she had closed more than sixty cracks,
and two of the fishermen had begun to help her on Sundays. In the second week of January the worst
storm in thirty years came in from the north-west. Waves broke over the pier, the power failed, and
the bakery lost its roof. The wall held. In the morning people stood in the rain and looked at it as
if they had never seen it before.

Water expands when it freezes. This is unusual, because most substances take up less space as a solid
than as a liquid. The reason is the shape of the molecule: in ice, each one is bound to four others in
an open lattice that leaves a good deal of empty room. As a result ice floats, lakes freeze from the
top downwards, and fish can survive the winter in the layer of water below. The same property splits
rocks, bursts pipes, and slowly turns small cracks in a road into large holes.

A train leaves the station at 9:40 and travels 126 kilometres at an average speed of 84 kilometres per
hour. The journey takes 126 / 84 = 1.5 hours, so the train arrives at 11:10. If it stops twice for
five minutes on the way, it arrives at 11:20.

To make a simple vegetable soup for four people, chop one onion, two carrots and a stick of celery.
Cook them in a little oil over a low heat for ten minutes, then add a litre of water, three potatoes
cut into cubes, salt and pepper. Let it simmer for twenty minutes. Add a handful of peas at the end
and serve the soup with bread.

The following function returns the number of words in each line of a text file:

def count_words(path):
    counts = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            counts.append(len(line.split()))
    return counts

if __name__ == "__main__":
    import sys
    for number, count in enumerate(count_words(sys.argv[1]), start=1):
        print(f"line {number}: {count} words")

Question: Which of the planets in our solar system is the largest?
Answer: Jupiter is the largest planet. Its mass is more than twice that of all the other planets
together.
)";
}

}  // namespace ts
