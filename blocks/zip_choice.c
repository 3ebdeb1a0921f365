#include "blocks/zip_choice.h"

#define SECOND 1e9
#define WEIGHT 0.25      // of a new sample
#define SAVING_LEAST 0.03

static double smooth(double old, double now)
{
	return old <= 0 ? now : old + WEIGHT * (now - old);
}

bool zip_choice_pays(const struct zip_choice *z)
{
	if (z->ratio <= 0 || z->zip_rate <= 0 || z->link_rate <= 0)
		return false;
	double plain = 1 / z->link_rate, zipped = z->ratio / z->link_rate, compressor = 1 / z->zip_rate;
	double longer = zipped > compressor ? zipped : compressor;
	return longer <= plain * (1 - SAVING_LEAST);
}

bool zip_choice_next(struct zip_choice *z)
{
	uint64_t i = z->n_blocks++;
	return i < ZIP_FIRST || i % ZIP_EVERY == 0 || zip_choice_pays(z);
}

bool zip_choice_note_zip(struct zip_choice *z, size_t plain, size_t zipped, int64_t ns)
{
	z->ratio = smooth(z->ratio, (double)zipped / (double)plain);
	z->zip_rate = smooth(z->zip_rate, (double)plain * SECOND / (double)(ns > 0 ? ns : 1));
	bool is_smaller = (double)zipped <= (double)plain * (1 - SAVING_LEAST);
	z->n_zipped += is_smaller;
	return is_smaller;
}

void zip_choice_note_link(struct zip_choice *z, uint64_t bytes, int64_t ns)
{
	if (bytes > 0 && ns > 0)
		z->link_rate = smooth(z->link_rate, (double)bytes * SECOND / (double)ns);
}
