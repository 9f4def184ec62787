const showDifference = () => null;
const showActivities = () => null;
const showProfiles = () => null;
