"""Which Philox stream a simulated draw comes from. Two uses never share one; 0 is the live plant's token sampling."""

TOKEN = 0  # inverse-CDF draw of the sampled token
LATENT = 1  # innovation of the entropy process
SHAPE = 2  # which latent shape of the cloud near that quantile
TRAIT = 3  # per request: base level, trend, regime
REGIME = 4  # regime switches within a request
END = 5  # end-of-sequence hazard
MASS = 6  # block masses
ARRIVAL = 7
LENGTH = 8
KIND = 9
FAULT = 10
DISPATCH = 11
FAILURE = 14
CANCEL = 15
PREFIX = 16
STEP_NOISE = 17
